"""The producer: records are collected in batches, which a thread writes and commits."""
