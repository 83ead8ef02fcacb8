"""Typed topics: the languages of schemas, the values that they describe, and their columns.

Rules: pure, below configs and formats. Not for: the versions of a topic's schema (``protocol.schema_versions``), the
layout of columns in files (``format``).
"""
