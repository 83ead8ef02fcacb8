"""Garbage collection: deletes what the state no longer names, one module for each kind of garbage."""
