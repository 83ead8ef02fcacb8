"""Settings of topics and of the cluster under Kafka's names: types, bounds and defaults."""
