"""What a cluster tells about itself: its system tables, read from the commit log and nothing else."""
