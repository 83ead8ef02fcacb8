"""What other threads may ask of a consumer while one is in ``poll``."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from sparklog.client.consumer.consumer import Consumer
from sparklog.client.consumer.records import MemberState
from tests.cluster.client.consumers import Cluster, at, until


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Cluster:
    return Cluster(request.node.name)


def ask_while_it_polls(consumer: Consumer, asks: Callable[[], None]) -> None:
    """Call ``asks`` again and again while another thread polls, until it raises no AssertionError."""
    polling = threading.Event()

    def poll() -> None:
        polling.set()
        consumer.poll(60_000)

    def asked() -> bool:
        try:
            asks()
        except AssertionError:
            return False
        return True

    thread = threading.Thread(target=poll)
    thread.start()
    polling.wait()
    try:
        until(asked)
    finally:
        consumer.close()
        thread.join(20)
    assert not thread.is_alive()


def test_another_thread_asks_for_the_assignment_while_one_polls(cluster: Cluster) -> None:
    with cluster.consumer("orders", group_id="g") as consumer:

        def asks() -> None:
            assert consumer.assignment() == {at(0), at(1)}
            assert consumer.subscription() == {"orders"}
            assert consumer.paused() == set()
            assert consumer.highwater(at(0)) == 0
            assert consumer.group_metadata().state == MemberState.STABLE

        ask_while_it_polls(consumer, asks)


def test_another_thread_asks_which_topics_match_while_one_polls(cluster: Cluster) -> None:
    with cluster.consumer() as consumer:
        consumer.subscribe(pattern="^ord.*")

        def asks() -> None:
            assert consumer.subscription() == {"orders"}
            assert consumer.assignment() == {at(0), at(1)}

        ask_while_it_polls(consumer, asks)


def test_group_metadata_says_where_a_member_is(cluster: Cluster) -> None:
    with cluster.consumer() as alone, cluster.consumer("orders", group_id="g") as member:
        assert tuple(alone.group_metadata()) == (None, -1, "", None, MemberState.UNJOINED)
        assert tuple(member.group_metadata()) == ("g", -1, "", None, MemberState.UNJOINED)
        until(member.assignment, lambda: member.poll(5))
        joined = member.group_metadata()
        assert (joined.generation_id, joined.state) == (1, MemberState.STABLE)
        with cluster.consumer("orders", group_id="g") as second:
            second.poll(5)
            assert second.group_metadata().state == MemberState.REBALANCING


def test_what_a_consumer_has_can_be_asked_after_its_close(cluster: Cluster) -> None:
    with cluster.consumer() as consumer:
        consumer.assign([at(0)])
        consumer.close()
        assert consumer.assignment() == {at(0)}
        assert consumer.subscription() is None
