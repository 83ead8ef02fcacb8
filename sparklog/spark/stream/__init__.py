"""Structured Streaming: offsets, micro-batches, and what a query's progress says."""
