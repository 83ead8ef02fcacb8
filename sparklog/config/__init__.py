"""Settings of topics and of the cluster, under Kafka's names: their types, bounds and defaults."""
