"""``sparklog.spark.consume``: tasks that are the members of a consumer group."""
