"""Consumer groups: membership, and the assignors that share out partitions. Pure."""
