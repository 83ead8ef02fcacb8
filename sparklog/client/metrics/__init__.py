"""What clients measure of themselves, with kafka-python's interface: metrics, their windows of time, requests.

Not for: what a cluster is measured by (``monitoring``).
"""
