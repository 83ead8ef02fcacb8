"""What the programs for spark-submit share, and the runner of tasks on executors."""
