"""Scrapes: how often the log is read for them, and what they get when the storage does not answer."""

from __future__ import annotations

import gzip
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sparklog.clock import ManualClock
from sparklog.errors import StorageUnavailableError
from sparklog.monitoring.exporter.collector import READ_SECONDS, Collector
from sparklog.monitoring.exporter.server import make_app


class Log:
    """Something to read that answers, fails or hangs."""

    unread_commits = 0

    def __init__(self) -> None:
        self.reads = 0
        self.error: Exception | None = None
        self.answers = threading.Event()
        self.answers.set()

    def read(self) -> str:
        self.reads += 1
        assert self.answers.wait(60)
        if self.error is not None:
            raise self.error
        return f"reads {self.reads}\n"


@pytest.fixture
def log() -> Iterator[Log]:
    log = Log()
    yield log
    log.answers.set()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def values(answer: bytes) -> dict[str, float]:
    lines = (line.rsplit(" ", 1) for line in answer.decode().splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in lines}


def test_scrapes_within_a_second_get_the_same_answer(log: Log, clock: ManualClock) -> None:
    collector = Collector(log, clock)
    assert {values(collector.scrape())["reads"] for _ in range(10)} == {1}
    clock.advance(READ_SECONDS)
    assert values(collector.scrape())["reads"] == 2


def test_scrapes_at_the_same_time_share_one_read(log: Log, clock: ManualClock) -> None:
    collector = Collector(log, clock)
    log.answers.clear()
    answers: list[bytes] = []
    scrapers = [threading.Thread(target=lambda: answers.append(collector.scrape(60))) for _ in range(8)]
    for scraper in scrapers:
        scraper.start()
    log.answers.set()
    for scraper in scrapers:
        scraper.join(60)
    assert log.reads == 1
    assert [values(answer)["sparklog_up"] for answer in answers] == [1] * 8


def test_a_storage_that_fails_leaves_the_last_values_and_is_not_up(
    log: Log, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    collector = Collector(log, clock)
    assert values(collector.scrape())["sparklog_up"] == 1
    log.error = StorageUnavailableError("no route\x1b to the storage")
    for _ in range(3):
        clock.advance(READ_SECONDS)
        failed = values(collector.scrape())
    assert (failed["reads"], failed["sparklog_up"], failed["sparklog_scrape_errors_total"]) == (1, 0, 3)
    log.error = None
    clock.advance(READ_SECONDS)
    assert values(collector.scrape())["sparklog_up"] == 1
    messages = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert messages == [
        "the metrics cannot be read: StorageUnavailableError: no route\\x1b to the storage",
        "the metrics are read again",
    ]


def test_a_storage_that_never_answered_leaves_only_the_exporters_own_metrics(log: Log, clock: ManualClock) -> None:
    log.error = StorageUnavailableError("no")
    own = values(Collector(log, clock, {"cluster": "eu"}).scrape())
    assert own['sparklog_up{cluster="eu"}'] == 0
    assert not any(name.startswith(("reads", "sparklog_scrape_timestamp")) for name in own)


def test_a_storage_that_hangs_does_not_hang_scrapes(log: Log, clock: ManualClock) -> None:
    collector = Collector(log, clock)
    collector.scrape()
    clock.advance(READ_SECONDS)
    log.answers.clear()
    assert values(collector.scrape(0.01))["sparklog_up"] == 0
    clock.advance(3600)
    for _ in range(5):  # at once: the read has had its time
        last = values(collector.scrape(60))
    assert (last["reads"], last["sparklog_up"], log.reads) == (1, 0, 2)
    log.answers.set()
    assert values(collector.scrape(7200))["reads"] == 2  # the scrape waited for it


def test_one_read_alone_has_no_counters_of_this_process(log: Log, clock: ManualClock) -> None:
    collector = Collector(log, clock)
    assert set(values(collector.read_once())) >= {"reads", "sparklog_up", "sparklog_scrape_duration_seconds"}
    assert b"_total" not in collector.read_once()
    log.error = StorageUnavailableError("no")
    with pytest.raises(StorageUnavailableError):
        collector.read_once()


# -- HTTP


@pytest.fixture
def get(log: Log, clock: ManualClock) -> Callable[..., tuple[str, dict[str, str], bytes]]:
    app = make_app(Collector(log, clock), lambda: b"process_metric 1\n")

    def request(path: str, method: str = "GET", **headers: str) -> tuple[str, dict[str, str], bytes]:
        answered: dict[str, Any] = {}
        environ = {
            "PATH_INFO": path,
            "REQUEST_METHOD": method,
            **{f"HTTP_{name}": text for name, text in headers.items()},
        }
        body = b"".join(app(environ, lambda status, fields: answered.update(status=status, headers=dict(fields))))
        return answered["status"], answered["headers"], body

    return request


Get = Callable[..., tuple[str, dict[str, str], bytes]]


def test_metrics_are_served_with_those_of_the_process(get: Get) -> None:
    status, headers, body = get("/metrics")
    assert (status, headers["Content-Type"]) == ("200 OK", "text/plain; version=0.0.4; charset=utf-8")
    assert body.startswith(b"reads 1\n")
    assert body.endswith(b"process_metric 1\n")
    assert headers["Content-Length"] == str(len(body))


def test_metrics_are_compressed_for_who_accepts_it(get: Get) -> None:
    plain = get("/metrics", ACCEPT_ENCODING="identity, gzip;q=0")
    assert "Content-Encoding" not in plain[1]
    packed = get("/metrics", ACCEPT_ENCODING="deflate, gzip;q=0.5")
    assert packed[1]["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed[2]) == plain[2]


def test_other_paths_and_methods_are_refused_and_health_needs_no_storage(get: Get, log: Log) -> None:
    log.answers.clear()
    assert get("/-/healthy")[::2] == ("200 OK", b"OK\n")
    assert get("/")[0] == "200 OK"
    assert [get(path)[0] for path in ("/metrics/", "/../etc/passwd", "")] == ["404 Not Found"] * 3
    assert [get("/metrics", method)[0] for method in ("POST", "DELETE")] == ["405 Method Not Allowed"] * 2
    log.answers.set()
    assert get("/metrics", "HEAD")[2] == b""


@pytest.mark.parametrize("timeout", ["nan", "-1", "soon", "0", "inf"])
def test_an_invalid_timeout_of_the_scraper_is_ignored(get: Get, timeout: str) -> None:
    assert get("/metrics", X_PROMETHEUS_SCRAPE_TIMEOUT_SECONDS=timeout)[0] == "200 OK"


def test_a_scrape_waits_for_half_of_its_timeout_at_most(get: Get, log: Log) -> None:
    log.answers.clear()
    assert b"\nsparklog_up 0\n" in get("/metrics", X_PROMETHEUS_SCRAPE_TIMEOUT_SECONDS="0.02")[2]
