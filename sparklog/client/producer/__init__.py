"""The producer: records gather in batches, and a thread writes and commits them."""
