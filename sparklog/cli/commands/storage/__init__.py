"""Commands about files: maintenance, garbage collection, checks and dumps."""
