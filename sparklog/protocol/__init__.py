"""What a commit says, the state that commits add up to, and every decision on it. Pure: no storage, clock or Spark."""
