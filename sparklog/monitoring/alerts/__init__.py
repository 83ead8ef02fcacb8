"""Alerts: rules that are evaluated from the log, what they find over time, and who is told.

``rules`` and ``rule_file`` say what to watch, ``measures`` what there is, ``transitions`` and ``ticks`` decide, all
without storage; ``alert_file`` keeps the outcome, ``channels`` send it, and ``evaluation`` runs them together.
"""
