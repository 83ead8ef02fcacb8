"""A group whose members are all dead is empty wherever it is shown, before maintenance removes them."""

from __future__ import annotations

import re
import uuid

import pytest

from sparklog.client.cluster import Cluster
from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster
from sparklog.coordinator.leases import Lease
from sparklog.monitoring.activity import read_activity
from sparklog.monitoring.system_tables import RowSelection, SystemTables
from sparklog.store.memory import MemoryStore
from sparklog.ui.follower import IDLE_SECONDS
from tests.shown_cluster import join
from tests.web import serving


@pytest.fixture
def cluster() -> Coordinator:
    """A cluster with a group of one member that has just renewed its lease."""
    clock = ManualClock()
    made = create_cluster(MemoryStore(uuid.uuid4().hex, clock), clock=clock)
    made.create_topic("orders", 2)
    join(made, "billing", "orders", 1)
    for member in made.state.groups["billing"].members:
        Lease(made.store, clock, "billing", member).renew()
    return made


def shown_states(cluster: Coordinator) -> list[tuple[str, int]]:
    """State and number of members of the group in every face that shows them."""
    tables = SystemTables(cluster)
    (row,) = tables.read("groups", RowSelection()).to_pylist()
    (active,) = read_activity(cluster, tables, 60).groups
    described = Cluster(cluster).admin().describe_groups(["billing"])["billing"]
    members = tables.read("members", RowSelection()).num_rows
    html = re.search(r"billing.*?>(\w+)<.*?>(\d+)<", Cluster(cluster)._repr_html_(), re.DOTALL)
    assert html
    return [
        (row["state"], row["members"]),
        (row["state"], members),
        (active.state, active.members),
        (described["group_state"], len(described["members"])),
        (html[1], int(html[2])),
    ]


def test_a_group_is_empty_in_every_face_once_its_members_are_dead(cluster: Coordinator) -> None:
    alive = shown_states(cluster)
    cluster.log.clock.sleep(60)
    assert alive == [("Stable", 1)] * 5
    assert shown_states(cluster) == [("Empty", 0)] * 5


def test_a_page_shows_it_although_nothing_was_committed(cluster: Coordinator) -> None:
    with serving(cluster, clock=cluster.log.clock) as web:
        before = web.get("/log/groups").text
        cluster.log.clock.sleep(max(60, IDLE_SECONDS))
        after = web.get("/log/groups").text
    assert ("Stable" in before, "Empty" in before) == (True, False)
    assert ("Stable" in after, "Empty" in after) == (False, True)
