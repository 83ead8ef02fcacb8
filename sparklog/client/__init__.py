"""Reading and writing a cluster from plain Python, without Spark: the base of the clients."""
