"""Decisions: pure functions (state, request) -> actions and a result, or an error.

Rules, for every module here: no storage, no clock, no randomness. A decision is valid only for the state it was made
from: when another writer wins the commit attempt, the coordinator decides again. What was found before, such as a
listing, a setting, an id by its name or a committed offset, is an argument and is compared with the state: the process
that found it may have been suspended for days.
"""
