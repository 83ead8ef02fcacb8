"""Record data: segment files are written to, and read from, the brokers of a partition."""
