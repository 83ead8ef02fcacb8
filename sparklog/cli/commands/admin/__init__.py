"""Commands about topics, groups, configs, partitions and brokers."""
