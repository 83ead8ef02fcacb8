"""The commit log: creates, reads and folds commits, and removes those that checkpoints stand for."""
