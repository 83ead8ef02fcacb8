"""Checkpoints: the state at a version, stored in files of which only what changed is written."""
