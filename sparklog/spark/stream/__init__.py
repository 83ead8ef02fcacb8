"""Structured Streaming: offsets, micro-batches, and the progress of queries."""
