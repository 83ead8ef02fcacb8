"""Runs the web page: opens the clusters, follows them, and serves pages until it is stopped.

    serve(Settings(roots=["/data/log"], host="127.0.0.1", port=8484))

Rules: an address that others can reach needs a token, or a proxy that signs in its users. Not for: the command line
(``cli.commands.monitoring.ui``).
"""

from __future__ import annotations

import ipaddress
import os
import re
import signal
import socket
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from sparklog.clock import SystemClock
from sparklog.coordinator import open_cluster
from sparklog.errors import InvalidConfigurationError
from sparklog.ids import RandomIds
from sparklog.monitoring.listen_address import is_loopback, listen_error, url_of
from sparklog.ui.follower import WATCHED_SECONDS, WATCHED_SECONDS_WITH_ALERTS, ClusterFollower
from sparklog.ui.guard import MIN_TOKEN_LENGTH, Access, Sessions, hosts_of
from sparklog.ui.site import Site

if TYPE_CHECKING:
    from sparklog.ui.alert_watch import AlertWatch

_NAME = re.compile(r"[^a-z0-9]+")
_RESERVED = ("static", "login")


@dataclass(frozen=True)
class Settings:
    """What is served, where, and to whom. ``rules`` and ``state`` are the paths of alert rules and of their states."""

    roots: Sequence[str]
    host: str = "127.0.0.1"
    port: int = 8484
    storage_options: Mapping[str, object] = field(default_factory=dict)
    token_file: str = ""
    allowed_hosts: Sequence[str] = ()
    proxy_header: str = ""
    proxies: Sequence[str] = ()
    secure_cookies: bool = False
    allow_changes: bool = False
    rules: str = ""
    state: str = ""


def serve(settings: Settings, announce: Callable[[str], None]) -> None:
    """Serve the web page until the process is told to stop. ``announce`` gets its address once it can be reached.

    Raises InvalidConfigurationError for settings that would let in anybody, or for a root that is given twice;
    ClusterNotFoundError, StorageError.
    """
    import uvicorn

    from sparklog.ui.app import create_app
    from sparklog.ui.connections import server_config

    access, alerts = make_access(settings), make_alerts(settings)
    pause = WATCHED_SECONDS if alerts is None else WATCHED_SECONDS_WITH_ALERTS
    with ended_by_sigterm(), ExitStack() as stack:
        clusters = [
            ClusterFollower(name, open_cluster(root, settings.storage_options), watched_seconds=pause)
            for name, root in zip(names_of(settings.roots), settings.roots, strict=True)
        ]
        _check_distinct([cluster.root for cluster in clusters])
        for cluster in clusters:
            cluster.start()
            stack.callback(cluster.stop)
        if alerts is not None:
            alerts.start(clusters)
            stack.callback(alerts.stop)
        listener = stack.enter_context(_listen(settings.host, settings.port))
        site = Site.of(clusters, settings.allow_changes, alerts)
        stack.callback(site.passes.stop)
        app = create_app(site, Sessions(access, SystemClock(), RandomIds()))
        announce(url_of(settings.host, listener.getsockname()[1]))
        uvicorn.Server(server_config(app)).run(sockets=[listener])


class _Terminated(BaseException):
    """SIGTERM has come."""


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM leave the block, as Ctrl-C does, before it ends the process; a second one ends it at once."""

    before = signal.getsignal(signal.SIGTERM)

    def leave(number: int, frame: FrameType | None) -> None:
        signal.signal(number, before)
        raise _Terminated

    signal.signal(signal.SIGTERM, leave)
    try:
        yield
    except _Terminated:
        signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)


def _listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens. Raises InvalidConfigurationError."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=100)
    except OSError as error:
        raise listen_error(host, port, error) from error


def make_alerts(settings: Settings) -> AlertWatch | None:
    """Return what evaluates the alert rules, None without any. Raises InvalidConfigurationError, StorageError."""
    if not settings.rules:
        return None
    from sparklog.monitoring.alerts.alert_file import state_path
    from sparklog.monitoring.alerts.rule_file import read_rule_file
    from sparklog.ui.alert_watch import AlertWatch

    return AlertWatch(read_rule_file(settings.rules), state_path(settings.rules, settings.state))


def make_access(settings: Settings) -> Access:
    """Return who may use the page. Raises InvalidConfigurationError if anybody who reaches the address could."""
    if bool(settings.proxy_header) != bool(settings.proxies):
        raise InvalidConfigurationError(
            "--proxy-header and --proxy-from belong together: the header counts only from the proxy's address",
            config="proxy-header",
        )
    if not (is_loopback(settings.host) or settings.token_file or settings.proxy_header):
        raise InvalidConfigurationError(
            f"--listen {settings.host} lets in anybody who reaches it: give --token-file FILE, or --proxy-header NAME "
            "and --proxy-from ADDRESS for a proxy that signs in its users, or listen on 127.0.0.1",
            config="listen",
        )
    return Access(
        hosts=hosts_of(settings.host, settings.allowed_hosts),
        token=read_token(settings.token_file) if settings.token_file else "",
        proxy_header=settings.proxy_header,
        proxies=frozenset(map(parse_proxy, settings.proxies)),
        secure_cookies=settings.secure_cookies,
    )


def parse_proxy(address: str) -> str:
    """Return a proxy's IP address as requests have it. Raises InvalidConfigurationError for a name."""
    try:
        return str(ipaddress.ip_address(address))
    except ValueError as error:
        raise InvalidConfigurationError(
            f"invalid --proxy-from {address!r}: give an IP address, such as 127.0.0.1 or ::1", config="proxy-from"
        ) from error


def read_token(path: str) -> str:
    """Return the token in a file that only its owner can read. Raises InvalidConfigurationError."""
    try:
        mode = os.stat(path).st_mode
        token = Path(path).read_text("utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidConfigurationError(f"--token-file {path} cannot be read: {reason}", config="token-file") from error
    if stat.S_ISREG(mode) and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise InvalidConfigurationError(
            f"--token-file {path} can be read by others: chmod 600 {path}", config="token-file"
        )
    if len(token) < MIN_TOKEN_LENGTH:
        raise InvalidConfigurationError(
            f"--token-file {path}: the token has {len(token)} characters, at least {MIN_TOKEN_LENGTH} are required; "
            "`head -c 24 /dev/urandom | base64` makes one",
            config="token-file",
        )
    return token


def _check_distinct(roots: Sequence[str]) -> None:
    """Raise InvalidConfigurationError for a root that is given twice: two passes of it could run at a time."""
    for number, root in enumerate(roots):
        if root in roots[:number]:
            raise InvalidConfigurationError(f"invalid roots: {root} is given twice; give each once", config="roots")


def names_of(roots: Sequence[str]) -> list[str]:
    """Return a name for each root, the end of its path, that no other has: they are the first parts of addresses."""
    names: list[str] = []
    for root in roots:
        end = _NAME.sub("-", root.rstrip("/").rpartition("/")[2].lower()).strip("-")[:40] or "cluster"
        name, number = end, 2
        while name in names or name in _RESERVED:
            name, number = f"{end}-{number}", number + 1
        names.append(name)
    return names
