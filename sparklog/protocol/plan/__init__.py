"""Plans: which segments to roll, compact or delete, and where replicas and records go. Pure."""
