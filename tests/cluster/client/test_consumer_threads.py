"""Calls that other threads may make while one thread is in ``poll``."""

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


def check_while_polling(consumer: Consumer, check: Callable[[], None]) -> None:
    """Repeat ``check`` while another thread polls, until it raises no AssertionError."""
    polling = threading.Event()

    def poll() -> None:
        polling.set()
        consumer.poll(60_000)

    def passes() -> bool:
        try:
            check()
        except AssertionError:
            return False
        return True

    thread = threading.Thread(target=poll)
    thread.start()
    polling.wait()
    try:
        until(passes)
    finally:
        consumer.close()
        thread.join(20)
    assert not thread.is_alive()


def test_another_thread_can_read_the_assignment_during_a_poll(cluster: Cluster) -> None:
    with cluster.consumer("orders", group_id="g") as consumer:

        def check() -> None:
            assert consumer.assignment() == {at(0), at(1)}
            assert consumer.subscription() == {"orders"}
            assert consumer.paused() == set()
            assert consumer.highwater(at(0)) == 0
            assert consumer.group_metadata().state == MemberState.STABLE

        check_while_polling(consumer, check)


def test_another_thread_can_read_the_matched_topics_during_a_poll(cluster: Cluster) -> None:
    with cluster.consumer() as consumer:
        consumer.subscribe(pattern="^ord.*")

        def check() -> None:
            assert consumer.subscription() == {"orders"}
            assert consumer.assignment() == {at(0), at(1)}

        check_while_polling(consumer, check)


def test_group_metadata_shows_the_state_of_a_member(cluster: Cluster) -> None:
    with cluster.consumer() as alone, cluster.consumer("orders", group_id="g") as member:
        assert tuple(alone.group_metadata()) == (None, -1, "", None, MemberState.UNJOINED)
        assert tuple(member.group_metadata()) == ("g", -1, "", None, MemberState.UNJOINED)
        until(member.assignment, lambda: member.poll(5))
        joined = member.group_metadata()
        assert (joined.generation_id, joined.state) == (1, MemberState.STABLE)
        with cluster.consumer("orders", group_id="g") as second:
            second.poll(5)
            assert second.group_metadata().state == MemberState.REBALANCING


def test_assignment_and_subscription_can_be_read_after_close(cluster: Cluster) -> None:
    with cluster.consumer() as consumer:
        consumer.assign([at(0)])
        consumer.close()
        assert consumer.assignment() == {at(0)}
        assert consumer.subscription() is None
