"""A signal handler that calls the client that it interrupts, and returns: each record whose future succeeds is in the
log once, with its own key and headers; no call waits for the one it interrupts, and the client works afterwards.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from sparklog.client.producer.futures import FutureRecordMetadata
from sparklog.client.producer.producer import Producer
from sparklog.coordinator import open_cluster
from sparklog.errors import SparklogError
from sparklog.testing.interrupts import count_points, interrupt
from tests.crash.copies import copy_of
from tests.crash.test_interrupts import OLD, SAMPLE, WAIT, Record, built, stored

Call = Callable[[], object]


class Client:
    """A producer, and what became of each record that was given to it."""

    def __init__(self, linger_ms: float) -> None:
        self.cluster = open_cluster(copy_of(built()))
        self.producer = Producer(cluster=self.cluster, linger_ms=linger_ms)
        self.sent: list[tuple[Record, FutureRecordMetadata]] = []
        self.refused: list[SparklogError] = []

    def send(self, value: bytes, key: bytes | None = None, header: bytes | None = None) -> None:
        headers = () if header is None else (("name", header),)
        record = (value, key, headers)
        try:
            self.sent.append((record, self.producer.send("t", value, key=key, headers=list(headers))))
        except SparklogError as error:
            self.refused.append(error)

    def check(self, is_closed: bool) -> None:
        """Check the log: it has what was accepted. Once a handler has closed the producer, records are refused."""
        for number in range(3):
            self.send(b"after %d" % number, b"k%d" % number)
        assert is_closed or not self.refused
        assert all("closed" in str(error) for error in self.refused)
        self.producer.close(WAIT)
        records = stored(self.cluster)
        offsets = [future.get(WAIT).offset for _, future in self.sent]
        first = len(OLD)
        assert sorted(offsets) == list(range(first, first + len(records)))
        assert [records[offset - first] for offset in offsets] == [record for record, _ in self.sent]
        assert is_closed or offsets[-3:] == sorted(offsets)[-3:], "sent later, and earlier in the log"
        assert (
            self.producer.metrics()["producer-metrics"]["buffer-available-bytes"]
            == self.producer.config["buffer_memory"]
        )


def send_first(client: Client) -> Call:
    return lambda: client.send(b"one", b"k", b"header")


def send_into_a_batch(client: Client) -> Call:
    """Its records had no key yet."""
    client.send(b"before")
    return lambda: client.send(b"one", b"k", b"header")


def send_again(client: Client) -> Call:
    """Into a batch in which sends were interrupted at every point."""
    point = 0
    while interrupt(lambda: client.send(b"main"), point, lambda: client.send(b"other", b"its key")):
        point += 1
    return lambda: client.send(b"one", b"k", b"header")


def flush(client: Client) -> Call:
    client.send(b"before", b"k")
    return lambda: client.producer.flush(WAIT)


def close(client: Client) -> Call:
    client.send(b"before", b"k")
    return lambda: client.producer.close(WAIT)


CALLS = {"first send": send_first, "send": send_into_a_batch, "send again": send_again, "flush": flush, "close": close}
HANDLERS: dict[str, Callable[[Client], object]] = {
    "send": lambda client: client.send(b"handler", header=b"handler's"),
    "flush": lambda client: client.producer.flush(WAIT),
    "send, flush": lambda client: (client.send(b"handler", b"its key"), client.producer.flush(WAIT)),
    "close": lambda client: client.producer.close(WAIT),
}


def run(name: str, handler: str, point: int) -> bool:
    client = Client(60_000 if "flush" in handler or name in ("flush", "close") else 5)
    call = CALLS[name](client)
    try:
        interrupted = interrupt(call, point, lambda: HANDLERS[handler](client))
        client.check(is_closed="close" in (handler, name))
    except BaseException as error:
        raise AssertionError(f"a handler called {handler} at point {point} of {name}: {error!r}") from error
    return interrupted


def points(name: str) -> Iterator[int]:
    client = Client(60_000)
    yield from range(count_points(CALLS[name](client)))
    with suppress(SparklogError):
        client.producer.close(WAIT)


@pytest.mark.parametrize("handler", HANDLERS)
@pytest.mark.parametrize("name", CALLS)
def test_a_handler_may_call_the_producer_anywhere(name: str, handler: str) -> None:
    all_points = list(points(name))
    for point in sorted(random.Random(name + handler).sample(all_points, min(SAMPLE, len(all_points)))):
        run(name, handler, point)


@pytest.mark.faults
@pytest.mark.parametrize("handler", HANDLERS)
@pytest.mark.parametrize("name", CALLS)
def test_a_handler_may_call_the_producer_at_every_line(name: str, handler: str) -> None:
    for point in points(name):
        run(name, handler, point)
