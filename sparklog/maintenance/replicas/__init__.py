"""Replication, reassignment, and the mirror of the commit log."""
