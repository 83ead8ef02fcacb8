"""Serves metrics over HTTP, with those of the process that prometheus_client has (memory, CPU, open files).

    with serving(collector, "127.0.0.1", 9308) as server: ...

Paths: ``/metrics``; ``/-/healthy``, which says that this process answers, whatever the storage does; ``/``, which links
to the first. There is no authentication and no TLS: listen on loopback, or put a proxy in front.

Rules: the only module that needs prometheus_client (extra ``metrics``); it is imported when a server is to be started.
Not for: the values (``cluster_metrics``), and what to answer if they cannot be read (``collector``).
"""

from __future__ import annotations

import gzip
import math
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.exposition import ThreadingWSGIServer

from sparklog.clock import SystemClock
from sparklog.monitoring.exporter.collector import WAIT_SECONDS, Collector
from sparklog.monitoring.exporter.text import CONTENT_TYPE
from sparklog.monitoring.listen_address import listen_error

SOCKET_SECONDS = 30.0
"""seconds that a client may take to send a part of a request, or to read a part of the answer."""

CONNECTION_SECONDS = 60.0
"""seconds after which a connection is closed, also if its client sends or reads a little now and then."""

MAX_CONNECTIONS = 256
"""Connections at the same time, each of which has a thread; beyond them the oldest is closed."""

COMPRESSION_LEVEL = 1
"""of gzip: the text of a large cluster shrinks to a twentieth in a quarter of the time of the default level."""

_PAGE = b"""<!DOCTYPE html><html lang="en"><title>sparklog</title><p><a href="/metrics">Metrics</a></p></html>\n"""

App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class Answer(NamedTuple):
    status: str
    content_type: str
    body: bytes


def make_app(collector: Collector, own_metrics: Callable[[], bytes] = bytes) -> App:
    """Return the WSGI application. ``own_metrics`` are appended to those of the cluster."""

    def answer(environ: dict[str, Any]) -> Answer:
        path = environ.get("PATH_INFO", "")
        if environ.get("REQUEST_METHOD") not in ("GET", "HEAD"):
            return Answer("405 Method Not Allowed", "text/plain", b"GET and HEAD only\n")
        if path == "/metrics":
            return Answer("200 OK", CONTENT_TYPE, collector.scrape(_wait_seconds(environ)) + own_metrics())
        if path == "/-/healthy":
            return Answer("200 OK", "text/plain", b"OK\n")
        if path == "/":
            return Answer("200 OK", "text/html; charset=utf-8", _PAGE)
        return Answer("404 Not Found", "text/plain", b"no such page; the metrics are at /metrics\n")

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        status, content_type, body = answer(environ)
        headers = [("Content-Type", content_type), ("X-Content-Type-Options", "nosniff"), ("Cache-Control", "no-store")]
        if status.startswith("405"):
            headers.append(("Allow", "GET, HEAD"))
        if content_type == CONTENT_TYPE and _accepts_gzip(environ.get("HTTP_ACCEPT_ENCODING", "")):
            body = gzip.compress(body, COMPRESSION_LEVEL, mtime=0)
            headers += [("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding")]
        headers.append(("Content-Length", str(len(body))))
        start_response(status, headers)
        return [] if environ.get("REQUEST_METHOD") == "HEAD" else [body]

    return app


def _wait_seconds(environ: dict[str, Any]) -> float:
    """Return how long to wait for the storage: half of the time that the scraper says it has, but not for long."""
    try:
        given = float(environ.get("HTTP_X_PROMETHEUS_SCRAPE_TIMEOUT_SECONDS", ""))
    except ValueError:
        return WAIT_SECONDS
    return min(given / 2, WAIT_SECONDS) if math.isfinite(given) and given > 0 else WAIT_SECONDS


def _accepts_gzip(header: str) -> bool:
    codings = (part.partition(";") for part in header.lower().split(","))
    return any(name.strip() == "gzip" and weight.strip() not in ("q=0", "q=0.0") for name, _, weight in codings)


class _Handler(WSGIRequestHandler):
    timeout = SOCKET_SECONDS

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: a scrape is no event."""


class _Server(ThreadingWSGIServer):
    address_family = socket.AF_INET
    request_queue_size = 128

    def __init__(self, address: tuple[str, int]) -> None:
        self._clock = SystemClock()
        self._begun: dict[Any, float] = {}
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread; if there are too many, the oldest ends."""
        if len(self._begun) >= MAX_CONNECTIONS:
            self._end(min(self._begun.copy().items(), key=lambda each: each[1], default=(request, 0.0))[0])
        self._begun[request] = self._clock.monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._begun.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """End connections that are too old; called twice a second."""
        super().service_actions()
        for request, begun in self._begun.copy().items():
            if self._clock.monotonic() - begun > CONNECTION_SECONDS:
                self._end(request)

    def _end(self, request: Any) -> None:
        """Let the thread of a connection find that its client is gone."""
        if self._begun.pop(request, None) is not None:
            with suppress(OSError):  # its thread has closed it just now
                request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a client that went away."""


class _Server6(_Server):
    address_family = socket.AF_INET6


@contextmanager
def serving(collector: Collector, host: str, port: int) -> Iterator[Any]:
    """Serve in threads inside the block; yields the server, whose ``server_port`` is the port, also if 0 was given.

    Raises InvalidConfigurationError if the address cannot be used.
    """
    registry = CollectorRegistry()
    for own in (ProcessCollector, PlatformCollector, GCCollector):
        own(registry=registry)
    kind = _Server6 if ":" in host else _Server
    try:
        server = kind((host, port))
    except (OSError, OverflowError) as error:
        raise listen_error(host, port, error) from error
    server.set_app(make_app(collector, lambda: generate_latest(registry)))
    thread = threading.Thread(target=server.serve_forever, name="sparklog-metrics-server", daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
