"""A consumer in situations that are rare and cost records, or progress."""

from __future__ import annotations

import pytest

from tests.unit.client.consumers import Cluster, at, read, until


def test_a_deleted_topic_does_not_end_the_automatic_commits_of_the_others(request: pytest.FixtureRequest) -> None:
    cluster = Cluster(request.node.name, 1)
    cluster.admin.create_topic("gone")
    cluster.write(0, b"a")
    cluster.write(0, b"b", topic="gone")
    with cluster.consumer(group_id="g", auto_commit_interval_ms=1) as consumer:
        consumer.assign([at(0), at(0, "gone")])
        read(consumer, 2)
        cluster.admin.delete_topic("gone")
        cluster.write(0, b"c")
        read(consumer, 1)
        until(lambda: consumer.committed(at(0)) == 2, lambda: consumer.poll(10))
