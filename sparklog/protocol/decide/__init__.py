"""Decisions: pure functions (state, request) -> actions and a result, or an error.

Rules, for every module here: no storage, no clock, no randomness. A decision is valid only for the state it was made
from: when another writer wins the commit attempt, the coordinator decides again.
"""
