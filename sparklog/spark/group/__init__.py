"""``sparklog.spark.consume``: Spark tasks as members of a consumer group."""
