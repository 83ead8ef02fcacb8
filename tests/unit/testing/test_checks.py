"""Each kind of finding is reported for the smallest history that has it, and not for the same history without the
fault."""

from __future__ import annotations

from math import inf
from typing import Any

from sparklog.testing.findings import (
    ABORTED_READ,
    DUPLICATE,
    FINDINGS,
    GROUP_OFFSET_BACK,
    INCONSISTENT_OFFSETS,
    LOST_WRITE,
    NON_MONOTONIC_POLL,
    SKIPPED_POLL,
    TORN_TRANSACTION,
    TWO_OWNERS,
    UNSEEN,
    ZOMBIE_WRITE,
)
from sparklog.testing.history import Position, Read, Write
from tests.unit.testing.histories import Story

# -- lost and unseen


def test_an_acknowledged_unread_write_below_read_offsets_is_lost() -> None:
    story = Story()
    story.send("a", 0)
    story.send("b", 1)
    story.poll((1, "b"))
    (finding,) = story.findings()
    assert finding.kind == LOST_WRITE
    assert [operation.kind for operation in finding.operations] == ["send", "poll"]
    assert "a at t-0 offset 0" in finding.message


def test_an_acknowledged_write_above_read_offsets_is_not_lost() -> None:
    story = Story()
    story.send("a", 0)
    story.send("b", 1)
    story.poll((0, "a"))
    assert story.findings() == []


def test_an_acknowledged_write_beyond_the_final_read_is_unseen() -> None:
    story = Story()
    story.send("a", 0)
    story.send("b", 1)
    story.read(["a"])
    (finding,) = story.findings()
    assert finding.kind == UNSEEN
    assert [operation.kind for operation in finding.operations] == ["send", "read"]


def compacted(*records: tuple[int, str], end: int) -> list[Read]:
    return [Read("t", 0, records, 0, end, compacted=True)]


def test_a_record_with_a_later_one_of_its_key_may_be_missing_in_a_compacted_topic() -> None:
    story = Story()
    for offset, (value, key) in enumerate([("a", "k"), ("b", "other"), ("c", "k")]):
        story.add("send", "p", writes=[Write("t", 0, value, offset, key)])
    story.poll((0, "a"), (1, "b"))
    story.add("read", "reader", reads=compacted((1, "b"), (2, "c"), end=3), final=True)
    assert story.findings() == []


def test_the_last_record_of_a_key_must_be_in_a_compacted_topic() -> None:
    story = Story()
    for offset, (value, key) in enumerate([("a", "k"), ("b", "k"), ("c", "other")]):
        story.add("send", "p", writes=[Write("t", 0, value, offset, key)])
    story.add("read", "reader", reads=compacted((0, "a"), (2, "c"), end=3), final=True)
    (finding,) = story.findings()
    assert finding.kind == LOST_WRITE
    assert "b at t-0 offset 1" in finding.message


def test_the_last_record_of_a_key_must_stay_in_a_compacted_topic_once_read() -> None:
    story = Story()
    story.add("send", "p", writes=[Write("t", 0, "a", 0, "k")])
    story.add("send", "p", writes=[Write("t", 0, "b", 1, "other")], outcome="info")
    story.poll((0, "a"), (1, "b"))
    story.add("read", "reader", reads=compacted((0, "a"), end=2), final=True)
    (finding,) = story.findings()
    assert finding.kind == UNSEEN
    assert "b at t-0 offset 1" in finding.message


def test_a_write_acknowledged_without_an_offset_and_absent_from_the_final_read_is_unseen() -> None:
    story = Story()
    story.send("a")
    story.read([])
    assert story.kinds() == {UNSEEN}


def test_a_polled_value_that_is_missing_in_the_final_read_is_unseen() -> None:
    story = Story()
    story.send("a", outcome="info")
    story.poll((0, "a"))
    story.read([])
    assert story.kinds() == {UNSEEN}


def test_a_write_acknowledged_during_the_final_read_may_be_missing_from_it() -> None:
    story = Story()
    story.send("a", 0, at=(0, 100))
    story.read([])
    assert story.findings() == []


def test_an_indeterminate_write_may_be_present_or_absent() -> None:
    for values in ([], ["a"]):
        story = Story()
        story.send("a", outcome="info", at=(0, inf))
        story.read(values)
        assert story.findings() == []


def test_records_that_retention_deleted_are_neither_lost_nor_unseen() -> None:
    story = Story()
    story.send("a", 0)
    story.poll((0, "a"))
    story.send("b", 1)
    story.send("c", 2)
    story.read(["c"], start=2)
    assert story.findings() == []


# -- duplicates and offsets


def test_a_value_at_two_offsets_is_a_duplicate() -> None:
    story = Story()
    story.send("a", 0)
    story.read(["a", "a"])
    (finding,) = story.findings()
    assert finding.kind == DUPLICATE
    assert "offset 0, t-0 offset 1" in finding.message


def test_a_value_in_two_partitions_is_a_duplicate() -> None:
    story = Story()
    story.send("a", 0)
    story.read(["a"], ["a"])
    assert story.kinds() == {DUPLICATE}


def test_a_record_read_by_two_consumers_is_not_a_duplicate() -> None:
    story = Story()
    story.send("a", 0)
    story.poll((0, "a"), process="c1")
    story.poll((0, "a"), process="c2")
    assert story.findings() == []


def test_two_values_at_one_offset_are_inconsistent() -> None:
    story = Story()
    story.send("a", outcome="info")
    story.send("b", outcome="info")
    story.poll((0, "a"), process="c1")
    story.poll((0, "b"), process="c2")
    assert story.kinds() == {INCONSISTENT_OFFSETS}


def test_an_acknowledged_offset_that_differs_from_the_read_one_is_inconsistent() -> None:
    story = Story()
    story.send("a", 3)
    story.read(["a"])
    assert story.kinds() == {INCONSISTENT_OFFSETS}


def test_two_values_acknowledged_at_one_offset_are_inconsistent() -> None:
    story = Story()
    story.send("a", 0)
    story.send("b", 0)
    assert story.kinds() == {INCONSISTENT_OFFSETS}


# -- aborted reads


def test_reading_a_failed_write_is_an_aborted_read() -> None:
    story = Story()
    story.send("a", outcome="fail")
    story.poll((0, "a"))
    (finding,) = story.findings()
    assert finding.kind == ABORTED_READ
    assert [operation.kind for operation in finding.operations] == ["send", "poll"]


def test_reading_a_transaction_without_a_requested_commit_is_an_aborted_read() -> None:
    for outcome, committing in (("fail", inf), ("fail", 1.0), ("info", inf)):
        story = Story()
        story.transaction(("a", 0, -1), outcome=outcome, committing=committing)
        story.poll((0, "a"))
        assert story.kinds() == {ABORTED_READ}


def test_reading_a_transaction_before_its_commit_was_requested_is_an_aborted_read() -> None:
    story = Story()
    story.transaction(("a", 0, 0), at=(0, 100), committing=90.0)
    story.poll((0, "a"))
    assert story.kinds() == {ABORTED_READ}


def test_reading_a_value_that_was_never_sent_is_an_aborted_read() -> None:
    story = Story()
    story.poll((0, "a"))
    assert story.kinds() == {ABORTED_READ}


def test_reading_a_transaction_during_its_commit_is_not_a_finding() -> None:
    story = Story()
    story.transaction(("a", 0, 0), at=(0, 100), committing=1.0)
    story.poll((0, "a"))
    assert story.findings() == []


# -- torn transactions


def test_a_transaction_partly_in_a_snapshot_is_torn() -> None:
    for outcome in ("ok", "info"):
        story = Story()
        story.transaction(("a", 0, -1), ("b", 1, -1), outcome=outcome)
        story.read(["a"], [], final=False)
        (finding,) = story.findings()
        assert finding.kind == TORN_TRANSACTION
        assert [operation.kind for operation in finding.operations] == ["transaction", "read"]


def test_a_transaction_completely_in_or_absent_from_a_snapshot_is_not_torn() -> None:
    cases: list[list[list[str]]] = [[[], []], [["a"], ["b"]]]
    for partitions in cases:
        story = Story()
        story.transaction(("a", 0, -1), ("b", 1, -1), outcome="info")
        story.read(*partitions)
        assert story.findings() == []


def test_a_transaction_partly_skipped_by_all_reads_is_torn() -> None:
    story = Story()
    story.transaction(("a", 0, 0), ("b", 1, 0))
    story.send("c", 1, partition=1)
    story.poll((0, "a"))
    story.poll((1, "c"), partition=1)
    assert story.kinds() == {TORN_TRANSACTION, LOST_WRITE}


def test_a_transaction_with_records_but_without_its_offsets_is_torn() -> None:
    story = Story()
    story.transaction(("a", 0, 0), offsets=[Position("t", 1, 7, "g")])
    story.read(["a"])
    story.add("committed", "reader", group="g", offsets=[Position("t", 1, 3)], final=True)
    assert TORN_TRANSACTION in story.kinds()


def test_a_transaction_with_offsets_but_without_its_records_is_torn() -> None:
    story = Story()
    story.transaction(("a", 0, -1), offsets=[Position("t", 1, 7, "g")], outcome="info")
    story.read([])
    story.add("committed", "reader", group="g", offsets=[Position("t", 1, 7)], final=True)
    assert story.kinds() == {TORN_TRANSACTION}


# -- polls


def test_a_consumer_whose_offsets_decrease_is_reported() -> None:
    story = Story()
    story.send("a", 0)
    story.send("b", 1)
    story.poll((0, "a"), (1, "b"))
    story.poll((0, "a"))
    (finding,) = story.findings()
    assert finding.kind == NON_MONOTONIC_POLL
    assert [operation.kind for operation in finding.operations] == ["poll", "poll"]


def test_offsets_that_decrease_within_one_poll_are_reported() -> None:
    story = Story()
    story.send("a", 0)
    story.send("b", 1)
    story.poll((1, "b"), (0, "a"))
    assert story.kinds() == {NON_MONOTONIC_POLL}


def test_a_consumer_may_go_back_after_a_seek_or_a_new_assignment() -> None:
    for event in ("seek", "assign"):
        story = Story()
        story.send("a", 0)
        story.poll((0, "a"))
        if event == "seek":
            story.add("seek", "c", positions=[Position("t", 0, 0)])
        else:
            story.revoke("c", 0)
            story.assign("c", 2, 0)
        story.poll((0, "a"))
        assert story.findings() == []


def test_a_consumer_may_not_go_back_in_a_partition_that_an_assignment_keeps() -> None:
    story = Story()
    story.send("a", 0)
    story.assign("c", 1, 0)
    story.poll((0, "a"))
    story.assign("c", 2, 0, 1)
    story.poll((0, "a"))
    assert story.kinds() == {NON_MONOTONIC_POLL}


def test_a_consumer_that_skips_a_record_is_reported() -> None:
    story = Story()
    for offset, value in enumerate("abc"):
        story.send(value, offset)
    story.poll((0, "a"))
    story.poll((2, "c"))
    story.poll((1, "b"), process="other")
    (finding,) = story.findings()
    assert finding.kind == SKIPPED_POLL
    assert "1 exist" in finding.message


def test_a_consumer_may_skip_offsets_without_records() -> None:
    story = Story()
    story.send("a", 0)
    story.send("c", 2)
    story.poll((0, "a"), (2, "c"))
    assert story.findings() == []


def test_a_consumer_that_does_not_start_at_its_position_is_reported() -> None:
    story = Story()
    for offset, value in enumerate("abc"):
        story.send(value, offset)
    story.assign("c", 1, 0, group="", positions=[Position("t", 0, 0)])
    story.poll((1, "b"), (2, "c"))
    story.poll((0, "a"), process="other")
    assert story.kinds() == {SKIPPED_POLL}


def test_a_group_that_starts_above_any_possible_commit_skips() -> None:
    for positions in ([], [Position("t", 0, 2)]):
        story = Story()
        for offset, value in enumerate("abc"):
            story.send(value, offset)
        story.commit(1)
        story.assign("c", 1, 0, reset="earliest", positions=positions)
        story.poll((2, "c"))
        story.poll((0, "a"), (1, "b"), process="other")
        assert story.kinds() == {SKIPPED_POLL}


def test_a_group_may_start_at_an_unacknowledged_commit() -> None:
    story = Story()
    for offset, value in enumerate("abc"):
        story.send(value, offset)
    story.commit(2, outcome="info", at=(30, inf))
    story.assign("c", 1, 0, reset="earliest", positions=[Position("t", 0, 2)])
    story.poll((2, "c"))
    story.poll((0, "a"), (1, "b"), process="other")
    assert story.findings() == []


# -- fences


def test_a_write_requested_after_a_newer_instance_started_is_a_zombie_write() -> None:
    story = Story()
    story.add("init_producer", "old", transactional_id="x", producer_id=1, epoch=0)
    story.add("init_producer", "new", transactional_id="x", producer_id=1, epoch=1)
    story.transaction(("a", 0, 0), process="old", transactional_id="x")
    (finding,) = story.findings()
    assert finding.kind == ZOMBIE_WRITE
    assert [operation.process for operation in finding.operations] == ["old", "new", "old"]


def test_an_unacknowledged_zombie_write_that_was_read_is_reported() -> None:
    story = Story()
    story.add("init_producer", "old", transactional_id="x")
    story.add("init_producer", "new", transactional_id="x")
    story.transaction(("a", 0, -1), process="old", transactional_id="x", outcome="info")
    story.poll((0, "a"))
    assert story.kinds() == {ZOMBIE_WRITE}


def test_a_write_that_overlaps_the_fence_or_is_refused_is_not_a_finding() -> None:
    for outcome, asked in (("ok", 12.0), ("fail", 25.0)):
        story = Story()
        story.add("init_producer", "old", transactional_id="x")
        story.add("init_producer", "new", transactional_id="x")
        story.transaction(
            ("a", 0, -1), process="old", transactional_id="x", outcome=outcome, at=(11, 90), committing=asked
        )
        assert story.findings() == []


def test_a_restarted_instance_is_the_newest() -> None:
    story = Story()
    story.add("init_producer", "one", transactional_id="x")
    story.add("init_producer", "two", transactional_id="x")
    story.add("init_producer", "one", transactional_id="x")
    story.transaction(("a", 0, 0), process="one", transactional_id="x")
    assert story.findings() == []


def test_a_commit_by_a_member_whose_partition_has_a_newer_owner_is_a_zombie_commit() -> None:
    story = Story()
    story.assign("m1", 1, 0)
    story.assign("m2", 2, 0)
    story.commit(5, process="m1", member="m1", generation=1)
    assert story.kinds() == {ZOMBIE_WRITE}


def test_a_commit_by_a_member_of_the_newest_generation_is_not_a_finding() -> None:
    story = Story()
    story.assign("m1", 1, 0)
    story.commit(5, process="m1", member="m1", generation=1)
    story.assign("m2", 2, 0)
    story.commit(6, process="m2", member="m2", generation=2)
    assert story.findings() == []


# -- groups


def test_two_owners_of_a_partition_in_one_generation_are_reported() -> None:
    story = Story()
    story.assign("m1", 1, 0, 1)
    story.assign("m2", 1, 1)
    (finding,) = story.findings()
    assert finding.kind == TWO_OWNERS
    assert "m1 and m2 own t-1" in finding.message


def test_a_partition_may_change_owner_within_a_generation_after_a_revocation() -> None:
    story = Story()
    story.assign("m1", 1, 0, 1)
    story.revoke("m1", 1)
    story.assign("m2", 1, 1)
    assert story.findings() == []


def test_owners_in_different_generations_and_returning_static_members_are_accepted() -> None:
    story = Story()
    story.assign("m1", 1, 0)
    story.assign("m2", 2, 0)
    story.assign("m3", 2, 1, instance="i")
    story.assign("m4", 2, 1, instance="i")
    assert story.findings() == []


def test_a_decreasing_group_offset_is_reported() -> None:
    story = Story()
    story.commit(5)
    story.commit(3)
    (finding,) = story.findings()
    assert finding.kind == GROUP_OFFSET_BACK
    assert "had committed 5 of t-0, and later has 3" in finding.message


def test_a_new_owner_that_starts_below_the_committed_offset_is_reported() -> None:
    story = Story()
    story.commit(5)
    story.assign("c", 2, 0, reset="earliest", positions=[Position("t", 0, 3)])
    assert story.kinds() == {GROUP_OFFSET_BACK}


def test_a_new_owner_that_rereads_committed_records_is_reported() -> None:
    for committed, kinds in ((1, {GROUP_OFFSET_BACK}), (0, set())):
        story = Story()
        story.send("a", 0)
        story.commit(committed)
        story.assign("c", 2, 0, reset="earliest")
        story.poll((0, "a"))
        assert story.kinds() == kinds


def test_a_decreasing_offset_in_the_commit_log_is_reported() -> None:
    story = Story()
    positions = [Position("t", 0, offset, "g") for offset in (3, 5, 4)]
    story.add("offset_log", "reader", offsets=positions)
    assert story.kinds() == {GROUP_OFFSET_BACK}


def test_a_group_offset_may_decrease_by_a_reset_or_after_a_seek() -> None:
    for kind in ("reset_offsets", "seek"):
        story = Story()
        story.commit(5)
        facts: dict[str, Any] = {"offsets" if kind == "reset_offsets" else "positions": [Position("t", 0, 1, "g")]}
        story.add(kind, "c", **facts)
        story.commit(3)
        assert story.findings() == []


def test_overlapping_commits_may_take_effect_in_any_order() -> None:
    story = Story()
    story.commit(5, at=(0, 10))
    story.commit(3, at=(5, 15), process="d")
    assert story.findings() == []


def test_every_kind_of_finding_is_listed_once() -> None:
    assert len(set(FINDINGS)) == len(FINDINGS) == 11
