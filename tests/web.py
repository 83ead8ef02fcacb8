"""A running web page of a test, and a client that sends exactly what it is told to.

with serving(coordinator) as web:
    assert web.get("/log/topics").status == 200
"""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import uvicorn

from sparklog.clock import Clock, SystemClock
from sparklog.coordinator import Coordinator
from sparklog.ids import RandomIds
from sparklog.ui.alert_watch import AlertWatch
from sparklog.ui.app import create_app
from sparklog.ui.connections import PATIENCE_SECONDS, server_config
from sparklog.ui.follower import ClusterFollower
from sparklog.ui.guard import Access, Sessions
from sparklog.ui.site import Site


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    text: str
    cookies: list[str]
    content: bytes = b""


class Web:
    """A server on a port of this machine. ``followers`` are not started: tests refresh them themselves."""

    def __init__(self, port: int, site: Site | None = None) -> None:
        self.port = port
        self.site = site or Site({})

    @property
    def followers(self) -> Mapping[str, ClusterFollower]:
        return self.site.clusters

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        return self.send("GET", path, headers)

    def send(self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b"") -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            sent = {"Host": f"127.0.0.1:{self.port}", "Connection": "close", **(headers or {})}
            if body:
                sent["Content-Length"] = str(len(body))
            for name, value in sent.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            cookies = answer.headers.get_all("set-cookie") or []
            content = answer.read()
            headers = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, headers, content.decode("utf-8", "replace"), cookies, content)
        finally:
            connection.close()

    def post(self, path: str, form: bytes, headers: Mapping[str, str] | None = None) -> Answer:
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        return self.send("POST", path, {**kind, **(headers or {})}, form)


@contextmanager
def serving(
    *coordinators: Coordinator,
    access: Access | None = None,
    clock: Clock | None = None,
    names: tuple[str, ...] = ("log",),
    allow_changes: bool = False,
    patience: float = 60,
    alerts: AlertWatch | None = None,
    connection_patience: float = PATIENCE_SECONDS,
) -> Iterator[Web]:
    """Serve the page of these clusters, named ``names``, until the block ends."""
    followers = [ClusterFollower(name, each, patience) for name, each in zip(names, coordinators, strict=True)]
    sessions = Sessions(access or Access(), clock or SystemClock(), RandomIds())
    site = Site.of(followers, allow_changes, alerts)
    app = create_app(site, sessions)
    server = uvicorn.Server(server_config(app, connection_patience))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield Web(listener.getsockname()[1], site)
        finally:
            server.should_exit = True
            thread.join(timeout=10)
