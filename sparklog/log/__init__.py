"""The commit log and the segment files of a cluster, as they lie in its stores; it decides nothing (``protocol``)."""
