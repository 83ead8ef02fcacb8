"""Decisions: (state, request) -> actions and a result, or an error. Pure."""
