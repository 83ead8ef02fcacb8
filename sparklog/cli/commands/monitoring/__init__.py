"""Commands that show what a cluster does."""
