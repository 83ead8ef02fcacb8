"""Garbage collection: deletes what no state names any more, one module for each kind of garbage."""
