"""The real S3 client against a server that loses, delays and falsifies answers: every outcome a client can observe.

``make test-faults`` runs every answer to a first request, and a seeded part of the answers to the client's retry: some
18,000 points. The ordinary tests run a sample.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from sparklog.store import read_ahead, s3
from sparklog.store.s3 import S3Store
from tests.stores import s3_answers
from tests.stores.s3_answers import OPERATIONS, Operation
from tests.stores.s3_stub import StubS3, stub_s3

SEED = int(os.environ.get("SPARKLOG_TEST_SEED", "1"))
RETRIED_POINTS = 800
"""points of each operation at which the client retries, out of 60,000."""


@pytest.fixture(scope="module")
def stub() -> Iterator[StubS3]:
    with stub_s3() as server:
        yield server


@pytest.fixture
def store(stub: StubS3, monkeypatch: pytest.MonkeyPatch) -> S3Store:
    monkeypatch.setattr(s3, "PART_BYTES", 10)
    return S3Store("s3://bucket/root", stub.options())


@pytest.mark.faults
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_results_are_true_for_any_answer(operation: Operation, stub: StubS3, store: S3Store) -> None:
    firsts = s3_answers.first_points(operation)
    retried = s3_answers.run(stub, store, firsts)
    assert 20 < len(retried) < len(firsts)  # the client treats some answers as final
    seconds = s3_answers.retried_points(operation, retried, RETRIED_POINTS, SEED)
    s3_answers.run(stub, store, seconds)
    print(f"{operation.name}: {len(firsts) + len(seconds)} points, seed {SEED}")


def test_results_are_true_for_a_sample_of_answers(stub: StubS3, store: S3Store) -> None:
    points = []
    for operation in OPERATIONS:
        firsts = s3_answers.first_points(operation)
        points += s3_answers.one_of_each_form(firsts, SEED)
        points += s3_answers.retried_points(operation, firsts, 5, SEED)
    s3_answers.run(stub, store, points)


def named_options(stub: StubS3) -> dict[str, Any]:
    """Options with the host's name, as every S3 has one, which the client looks up in threads."""
    return {**stub.options(), "endpoint_url": stub.endpoint.replace("127.0.0.1", "localhost")}


AT_EXIT = """
import atexit
from sparklog.store import s3

s3.PART_BYTES = 10
store = s3.S3Store("s3://bucket/at-exit", {options!r})
store.put("first", b"1")

def write():
    with store.open_output("t-0/a.log") as output:
        for _ in range(9):
            output.write(b"0123456789")

atexit.register(write)
"""


def test_parts_are_sent_during_interpreter_shutdown(stub: StubS3) -> None:
    program = AT_EXIT.format(options=named_options(stub))
    ended = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=60)
    assert ended.stderr == ""
    assert S3Store("s3://bucket/at-exit", stub.options()).get("t-0/a.log") == b"0123456789" * 9


AFTER_MAIN = """
import concurrent.futures.thread, threading, time
from sparklog.store import read_ahead, s3

store = s3.S3Store("s3://bucket/after-main", {options!r})

def work():
    while not concurrent.futures.thread._shutdown:  # the library's pools take no calls from here on
        time.sleep(0.01)
    store.put("a", bytes(9 * read_ahead.WINDOW_BYTES))
    file, step = store.open_input("a"), read_ahead.START_AFTER_BYTES
    print(sum(file.read_at(at, step).size for at in range(0, 9 * read_ahead.WINDOW_BYTES, step)))

threading.Thread(target=work).start()
"""


def test_a_thread_goes_on_after_the_main_thread_has_ended(stub: StubS3) -> None:
    program = [sys.executable, "-c", AFTER_MAIN.format(options=named_options(stub))]
    ended = subprocess.run(program, check=False, capture_output=True, text=True, timeout=100)
    assert (ended.stderr, ended.stdout) == ("", f"{9 * read_ahead.WINDOW_BYTES}\n")
