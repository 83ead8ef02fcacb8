"""Shared code of the programs for spark-submit, and the runner of tasks on executors."""
