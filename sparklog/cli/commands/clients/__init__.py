"""Commands that produce and consume."""
