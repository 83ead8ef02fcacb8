"""Operation logs: recorded operations are read back, even if the recording process was killed."""

from __future__ import annotations

import subprocess
import sys
from math import inf
from pathlib import Path

import pytest

from sparklog.clock import ManualClock
from sparklog.testing.history import (
    COMMIT_OFFSETS,
    POLL,
    SEND,
    TRANSACTION,
    History,
    OperationLog,
    Position,
    Read,
    Write,
    read_entries,
)


def test_an_operation_is_read_with_its_times_outcome_and_notes(tmp_path: Path) -> None:
    clock = ManualClock()
    log = OperationLog("p", tmp_path / "p.jsonl", clock)
    sent = log.invoke(SEND, writes=[Write("t", 0, "a")])
    clock.advance(1.5)
    sent.ok(writes=[Write("t", 0, "a", 7)])
    log.close()
    (operation,) = History.load(tmp_path).operations
    assert (operation.process, operation.kind, operation.outcome) == ("p", SEND, "ok")
    assert (operation.invoked, operation.completed) == (0.0, 1.5)
    assert operation.writes == [Write("t", 0, "a", 7)]
    assert operation.may_have_happened


def test_notes_add_to_a_transaction_and_record_when_its_commit_was_requested() -> None:
    clock = ManualClock()
    log = OperationLog("p", clock=clock)
    transaction = log.invoke(TRANSACTION, transactional_id="x")
    transaction.note(writes=[Write("t", 0, "a")])
    transaction.note(writes=[Write("t", 1, "b")], offsets=[Position("in", 0, 3, "g")])
    (operation,) = History.collect([log]).operations
    assert not operation.may_have_happened
    clock.advance(2)
    transaction.committing()
    (operation,) = History.collect([log]).operations
    assert [write.value for write in operation.writes] == ["a", "b"]
    assert operation.offsets == [Position("in", 0, 3, "g")]
    assert (operation.asked, operation.completed, operation.outcome) == (2.0, inf, "info")
    assert operation.may_have_happened


def test_an_unrecorded_error_leaves_an_operation_indeterminate() -> None:
    log = OperationLog("p", clock=ManualClock())
    with pytest.raises(ValueError), log.invoke(POLL):
        raise ValueError("no")
    with log.invoke(POLL) as poll:
        poll.ok(reads=[Read("t", 0, [(0, "a")])])
    failed, done = History.collect([log]).operations
    assert (failed.outcome, failed.error) == ("info", "ValueError: no")
    assert (done.outcome, done.reads) == ("ok", [Read("t", 0, [(0, "a")])])


def test_only_the_first_end_of_an_operation_counts() -> None:
    log = OperationLog("p", clock=ManualClock())
    operation = log.invoke(COMMIT_OFFSETS)
    operation.fail("refused")
    operation.ok()
    assert [entry.type for entry in log.entries] == ["invoke", "fail"]


def test_a_truncated_log_is_repaired_and_continues_with_the_next_number(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    log = OperationLog("p", path)
    log.record(POLL)
    log.close()
    with path.open("ab") as file:
        file.write(b'{"process":"p","num')
    assert len(read_entries(path)) == 2
    log = OperationLog("p", path)
    log.record(POLL)
    log.close()
    assert [operation.number for operation in History.load(tmp_path).operations] == [0, 1]


WORKER = """
import sys
from sparklog.testing.history import *
log = OperationLog("killed", sys.argv[1])
number = 0
while True:
    log.invoke(SEND, writes=[Write("t", 0, f"v{number}")]).ok()
    number += 1
    if number == 100:
        print("ready", flush=True)
"""


def test_a_process_killed_with_sigkill_keeps_all_complete_lines(tmp_path: Path) -> None:
    path = tmp_path / "killed.jsonl"
    process = subprocess.Popen([sys.executable, "-c", WORKER, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    process.kill()
    process.communicate()
    operations = History.load(tmp_path).operations
    assert len(operations) >= 100
    assert [operation.number for operation in operations] == list(range(len(operations)))
    assert all(operation.outcome == "ok" for operation in operations[:-1])
