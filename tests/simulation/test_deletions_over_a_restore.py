"""What the simulation says of deletions by a process that was suspended while the root was restored."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from sparklog.client.producer.batch_files import PartitionRun, write_files
from sparklog.coordinator import Coordinator
from sparklog.log.layout import CLUSTER_KEY
from sparklog.protocol.decide.append import AppendRequest, PartitionAppend
from sparklog.protocol.file_names import index_path
from tests.simulation.location_actors import batch_of, metadata_of
from tests.simulation.location_operators import set_back, take_snapshot
from tests.simulation.location_truth import DELETED, UNREADABLE
from tests.simulation.locations import ROOT, World


@pytest.fixture
def world() -> Iterator[World]:
    made = World(0)
    made.rates, made.stop_rate = {}, 0.0
    yield made
    made.close()


def write(coordinator: Coordinator) -> list[PartitionAppend]:
    run = PartitionRun(0, [batch_of("root", [b"value"], 0)], -1)
    return write_files(coordinator, metadata_of(coordinator, "root"), [run])


def run(world: World, work: Callable[[], None]) -> set[str]:
    """Run one process; return the kinds of findings."""
    world.spawn("process", work)
    world.run()
    return {finding.kind for finding in world.truth.findings}


def restore_and_delete(world: World, path: str, looks: bool) -> None:
    """Delete a file after the root was restored; ``looks``: another call comes before that."""
    store = world.life.store(ROOT)
    store.get(CLUSTER_KEY)
    set_back(world, take_snapshot(world))
    if looks:
        store.get(CLUSTER_KEY)
    store.delete(index_path(path))
    store.delete(path)


@pytest.mark.parametrize(("looks", "found"), [(False, set()), (True, {DELETED})])
def test_only_the_batch_that_was_begun_before_a_restore_may_delete_what_is_needed(
    world: World, looks: bool, found: set[str]
) -> None:
    def work() -> None:
        coordinator = world.open_at(ROOT)
        appends = write(coordinator)
        coordinator.append(AppendRequest(appends=appends))
        restore_and_delete(world, appends[0].run.path, looks)

    assert run(world, work) == found


@pytest.mark.parametrize(("looks", "found"), [(False, set()), (True, {UNREADABLE})])
def test_a_file_of_that_batch_may_be_appended_later(world: World, looks: bool, found: set[str]) -> None:
    """Its writer knows a commit that the restored log has."""

    def work() -> None:
        coordinator = world.open_at(ROOT)
        appends = write(coordinator)
        restore_and_delete(world, appends[0].run.path, looks)
        coordinator.append(AppendRequest(appends=appends))

    assert run(world, work) == found


def test_what_was_begun_after_the_restored_version_is_not_given_up(world: World) -> None:
    root = world.home(ROOT)

    def work() -> None:
        coordinator = world.open_at(ROOT)
        kept = take_snapshot(world)
        coordinator.append(AppendRequest(appends=write(coordinator)))
        path = write(coordinator)[0].run.path
        set_back(world, kept)
        world.truth.deletes_late(root, path)
        assert path not in root.emptied

    assert run(world, work) == set()
