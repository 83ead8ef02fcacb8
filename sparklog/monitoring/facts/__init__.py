"""Facts of a cluster at a version: what commands, system tables, pages, metrics, alerts and notebooks show of it.

A fact has one formula, which is here. A kind of facts is a named tuple whose fields are the columns of a system table.
Rules: pure, from a state and what is passed with it. Not for: what commits changed (``commit_rows``, ``lag``).
"""
