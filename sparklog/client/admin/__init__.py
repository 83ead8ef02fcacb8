"""The admin client: kafka-python's ``KafkaAdminClient`` over a log on shared storage."""
