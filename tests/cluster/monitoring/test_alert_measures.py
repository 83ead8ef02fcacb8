"""What each kind of rule measures in a cluster."""

from __future__ import annotations

import pytest

from sparklog.coordinator import open_cluster
from sparklog.coordinator.topic_deletion import delete_topic
from sparklog.errors import StorageUnavailableError
from sparklog.log.commits.cleanup import clean_up
from sparklog.log.settings import LogSettings
from sparklog.maintenance.gc.sweep import sweep
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.segments.retention import retain
from sparklog.maintenance.segments.roll import roll
from sparklog.monitoring.system_tables import RowSelection
from sparklog.protocol.commits import ChangeBroker, RegisterBroker
from sparklog.testing.faulty_store import FaultyStore
from tests.cluster.monitoring.alert_clusters import QuietCluster

HOUR = 3600.0


@pytest.fixture
def quiet() -> QuietCluster:
    return QuietCluster()


def test_lag_adds_up_the_partitions_of_a_topic(quiet: QuietCluster) -> None:
    quiet.append(5)
    quiet.append(7, partition=1)
    quiet.commit_offset(2)
    quiet.commit_offset(0, partition=1)
    quiet.commit_offset(5, group="audit")
    assert quiet.measured(kind="lag", above=1) == {"billing orders": 10}
    assert quiet.measured(kind="lag", above=1, group="!billing") == {}
    assert quiet.measured(kind="lag", above=1, topic=["pay-*", "o*"]) == {"billing orders": 10}


def test_an_offset_past_the_end_hides_no_lag_of_another_partition(quiet: QuietCluster) -> None:
    quiet.commit_offset(1_000_000)
    quiet.commit_offset(0, partition=1)
    for _ in range(7):
        quiet.append(10, partition=1)
        quiet.wait(600)
    assert quiet.measured(kind="lag", above=1) == {"billing orders": 70}
    assert quiet.measured(kind="lag_rising", over="59m")
    groups = quiet.tables.read("groups", RowSelection(), quiet.coordinator.refresh())
    assert groups.column("lag").to_pylist() == [70]


def test_lag_seconds_counts_from_the_commit_of_the_first_record_that_was_not_read(quiet: QuietCluster) -> None:
    quiet.commit_offset(0)
    quiet.append(3)
    quiet.wait(100)
    quiet.append(3)
    quiet.wait(20)
    assert quiet.measured(kind="lag_seconds", above="1s") == {"billing orders": 120}
    quiet.commit_offset(4)
    assert quiet.measured(kind="lag_seconds", above="1s") == {"billing orders": 20}
    quiet.commit_offset(6)
    assert quiet.measured(kind="lag_seconds", above="1s") == {}


def test_lag_of_records_whose_commits_are_removed_is_as_long_as_the_oldest_commit_that_is_kept() -> None:
    quiet = QuietCluster()
    quiet.commit_offset(0)
    quiet.append(3)
    for _ in range(30):
        quiet.wait(10)
        quiet.commit_offset(0, group="other")
    log = quiet.coordinator.log
    log.write_checkpoint()
    settings = LogSettings(min_commits_kept=0, min_commit_age_ms=0)
    removed = clean_up(log.store, log.expiry_clock, {"metadata.max.retention.ms": "100000"}, settings)
    assert removed.commits > 3
    quiet.tables = type(quiet.tables)(quiet.coordinator)
    (seconds,) = quiet.measured(kind="lag_seconds", above="1s", group="billing").values()
    assert 80 <= seconds <= 110


def test_a_lag_that_rises_is_measured_by_its_growth_and_not_if_it_ever_fell(quiet: QuietCluster) -> None:
    quiet.commit_offset(0)
    for _ in range(7):
        quiet.append(10)
        quiet.wait(600)
    (growth,) = quiet.measured(kind="lag_rising", over="59m").values()
    assert 40 <= growth <= 50, "the first of the moments is up to a sixth of the time later"
    quiet.commit_offset(55)
    quiet.append(50)
    quiet.wait(600)
    assert quiet.measured(kind="lag_rising", over="59m") == {}


def test_no_commit_counts_from_the_last_commit_of_a_group_also_without_new_records(quiet: QuietCluster) -> None:
    quiet.commit_offset(0)
    quiet.wait(50)
    quiet.commit_offset(0, partition=1)
    quiet.wait(30)
    assert quiet.measured(kind="no_commit", above="1s") == {"billing": 30}


def test_a_group_makes_no_progress_if_it_had_records_all_the_time_and_did_not_move(quiet: QuietCluster) -> None:
    quiet.append(5)
    quiet.append(5, partition=1)
    quiet.commit_offset(0)
    quiet.commit_offset(1, partition=1)
    quiet.wait(500)
    assert quiet.measured(kind="no_progress", above="10m") == {}, "not for long enough"
    quiet.commit_offset(0)
    quiet.wait(200)
    assert quiet.measured(kind="no_progress", above="10m") == {"billing orders": 700}, "the same offset is no progress"
    quiet.commit_offset(2, partition=1)
    assert quiet.measured(kind="no_progress", above="10m") == {"billing orders": 700}, "partition 0 is still stuck"
    quiet.commit_offset(1)
    assert quiet.measured(kind="no_progress", above="10m") == {}


def test_a_group_that_has_read_everything_makes_no_progress_without_being_stuck(quiet: QuietCluster) -> None:
    quiet.append(5)
    quiet.commit_offset(5)
    quiet.wait(HOUR)
    quiet.append(5)
    quiet.wait(60)
    assert quiet.measured(kind="no_progress", above="10m") == {}


def test_an_application_that_wrote_and_then_stopped_is_measured_by_its_last_write(quiet: QuietCluster) -> None:
    quiet.write_as("copier", 1)
    quiet.write_as("loader", 1)
    quiet.wait(HOUR)
    quiet.write_as("loader", 2)
    quiet.wait(60)
    assert quiet.measured(kind="stopped", above="30m") == {"copier": HOUR + 60}
    assert quiet.measured(kind="stopped", above="30m", application="load*") == {}
    quiet.write_as("copier", 2)
    assert quiet.measured(kind="stopped", above="30m") == {}


def test_partitions_with_too_few_replicas_in_sync_or_no_leader_are_counted(quiet: QuietCluster) -> None:
    for number in (1, 2):
        quiet.commit(RegisterBroker(broker=number, url=f"memory://elsewhere-{number}"))
    quiet.change_partition(0, leader=0, isr=[0, 1], replicas=[0, 1, 2])
    quiet.change_partition(1, leader=-1, isr=[0], replicas=[0, 1, 2])
    assert quiet.measured(kind="isr") == {"orders": 2}
    assert quiet.measured(kind="isr", below=2) == {"orders": 1}
    assert quiet.measured(kind="isr", below=1) == {}
    assert quiet.measured(kind="leaderless") == {"orders": 1}


def test_a_topic_with_fewer_replicas_than_wanted_in_sync_is_not_counted_if_all_are(quiet: QuietCluster) -> None:
    assert quiet.measured(kind="isr", below=2) == {}


def test_a_location_that_is_offline_is_found(quiet: QuietCluster) -> None:
    quiet.commit(RegisterBroker(broker=1, url="memory://elsewhere"))
    assert quiet.measured(kind="offline") == {}
    quiet.commit(ChangeBroker(broker=1, online=False))
    assert quiet.measured(kind="offline") == {"1": 1}
    assert quiet.measured(kind="offline", broker="2") == {}


def test_files_that_should_have_been_rolled_are_counted_until_a_roll(quiet: QuietCluster) -> None:
    for _ in range(8):
        quiet.append(1)
    quiet.wait(HOUR)
    quiet.append(1, partition=1)
    assert quiet.measured(kind="maintenance", late="2h") == {}
    assert quiet.measured(kind="maintenance", late="30m") == {"roll orders": 8}
    assert quiet.measured(kind="maintenance", late="30m", step="retention") == {}
    roll(quiet.coordinator, InProcess())
    assert quiet.measured(kind="maintenance", late="30m", step="roll") == {}


def test_segments_that_retention_should_have_removed_are_counted_until_it_does() -> None:
    quiet = QuietCluster()
    quiet.coordinator.create_topic("short", configs={"retention.ms": "3600000"})
    quiet.append(1, topic="short")
    quiet.wait(2 * HOUR)
    assert quiet.measured(kind="maintenance", late="90m") == {}
    assert quiet.measured(kind="maintenance", late="30m") == {"retention short": 1}
    retain(quiet.coordinator)
    assert quiet.measured(kind="maintenance", late="30m") == {}


def test_retired_files_that_should_have_been_deleted_are_counted_until_a_sweep() -> None:
    quiet = QuietCluster()
    quiet.coordinator.create_topic("short", configs={"retention.ms": "1000"})
    quiet.append(1, topic="short")
    quiet.wait(60)
    retain(quiet.coordinator)
    assert quiet.measured(kind="retired_bytes", above=1).keys() == {""}
    quiet.wait(HOUR)
    assert quiet.measured(kind="maintenance", late="2h", step="deletion") == {}
    assert quiet.measured(kind="maintenance", late="30m", step="deletion") == {"deletion": 1}
    sweep(quiet.coordinator)
    assert quiet.measured(kind="maintenance", late="30m", step="deletion") == {}
    assert quiet.measured(kind="retired_bytes", above=1) == {}


def test_commits_within_a_time_and_those_that_are_kept_are_counted(quiet: QuietCluster) -> None:
    quiet.wait(HOUR)
    for _ in range(5):
        quiet.commit_offset(0)
    assert quiet.measured(kind="commit_rate", above=1, over="10m") == {"": 5}
    assert quiet.measured(kind="commits_kept", above=1) == {"": quiet.coordinator.state.version + 1}


def test_bytes_of_a_topic_are_those_at_all_its_replicas(quiet: QuietCluster) -> None:
    quiet.append(10)
    size = quiet.coordinator.state.partition("orders", 0).size_bytes
    assert quiet.measured(kind="topic_bytes", above=1) == {"orders": size}


def test_a_group_in_the_state_of_an_older_log_is_measured_after_its_topic_was_deleted(quiet: QuietCluster) -> None:
    quiet.append(5)
    quiet.commit_offset(0)
    delete_topic(quiet.coordinator, "orders")
    quiet.wait(HOUR)
    for kind in ("lag", "lag_seconds", "no_progress"):
        above = 1 if kind == "lag" else "1s"
        assert quiet.measured(kind=kind, above=above) == {}


def test_an_empty_cluster_has_nothing_to_measure() -> None:
    quiet = QuietCluster()
    delete_topic(quiet.coordinator, "orders")
    for kind, above in (("lag", 1), ("lag_seconds", "1s"), ("lag_rising", 1), ("no_progress", "1s"), ("stopped", "1s")):
        assert quiet.measured(kind=kind, above=above) == {}
    assert quiet.measured(kind="maintenance") == {}


def test_a_storage_that_does_not_answer_raises(quiet: QuietCluster) -> None:
    quiet.append(1)
    faulty = FaultyStore(quiet.coordinator.store, seed=0)
    other = QuietCluster()
    other.coordinator = open_cluster(faulty, clock=quiet.clock)
    other.tables = type(other.tables)(other.coordinator)
    faulty.inject(rates={"unavailable": 1.0})
    with pytest.raises(StorageUnavailableError):
        other.measured(kind="lag", above=1)


def test_a_commit_of_a_writer_whose_clock_is_ahead_counts(quiet: QuietCluster) -> None:
    quiet.append(5)
    quiet.commit_offset(0)
    quiet.wait(700)
    right = quiet.clock.now_ms()
    quiet.clock.set_ms(right + 86_400_000)
    quiet.commit_offset(3)
    quiet.clock.set_ms(right)
    assert quiet.measured(kind="no_progress", above="10m") == {}
    assert quiet.measured(kind="lag_seconds", above="10m") == {"billing orders": 700}


def test_a_lag_that_was_not_known_before_does_not_rise() -> None:
    """Of a group that committed nothing until lately nothing is known before, which is no lag of 0."""
    quiet = QuietCluster()
    quiet.append(10)
    quiet.commit_offset(0, group="idle")
    for _ in range(3):
        quiet.wait(600)
        quiet.commit_offset(0, group="idle")
    quiet.commit_offset(0)
    for _ in range(3):
        quiet.wait(600)
        quiet.commit_offset(0)
    assert quiet.measured(kind="lag_rising", over="59m") == {}
