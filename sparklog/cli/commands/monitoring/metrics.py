"""``sparklog metrics``: exports metrics for Prometheus, over HTTP or as a file for node_exporter.

Kafka has no such command; the names of metrics and of the filters are those of kafka_exporter.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from sparklog import __version__
from sparklog.cli.arguments.listen import parse_listen
from sparklog.cli.arguments.parser import (
    CommandError,
    CommandParser,
    UsageError,
    complain,
    connect,
    given,
    parse_pairs,
    say,
)
from sparklog.clock import Clock
from sparklog.monitoring.listen_address import is_loopback, url_of

if TYPE_CHECKING:
    from sparklog.monitoring.exporter.cluster_metrics import MetricSelection
    from sparklog.monitoring.exporter.collector import Collector

DEFAULT_LISTEN = "127.0.0.1:9308"
DEFAULT_LOOKBACK = 1000
MAX_LOOKBACK = 5000
"""``MAX_NEW_COMMITS`` of the exporter, which would be too slow to import for ``--help``."""

_LABEL = re.compile(r"(?!__)[A-Za-z_][A-Za-z0-9_]*")


def parser() -> CommandParser:
    options = CommandParser(
        "metrics",
        "Export metrics for Prometheus, with the names and labels of kafka_exporter: offsets, leaders and replicas of\n"
        "partitions, members, offsets and lag of groups; and names of its own, which begin with sparklog_.\n"
        "All of them come from the commit log, which is read when it is scraped, once a second at most.",
        "sparklog metrics --bootstrap-server /data/log --listen 127.0.0.1:9308",
    )
    options.add_value(
        "--listen", "HOST:PORT", f"the address to serve at (default {DEFAULT_LISTEN}); port 0 takes a free one"
    )
    options.add_switch(
        "--allow-remote", "allow an address that other machines can reach, without authentication or TLS"
    )
    options.add_switch("--once", "print the metrics and end; exit code 1 if the storage does not answer")
    options.add_value("--output", "FILE", "with --once: replace this file, for node_exporter's textfile collector")
    group = options.add_group("What is exported")
    for what, names in (("topic", "topics"), ("group", "groups")):
        for verb, action in (("filter", "export only"), ("exclude", "leave out")):
            group.add_value(
                f"--{what}.{verb}", "REGEX", f"{action} {names} in whose name it is found", dest=f"{what}_{verb}"
            )
    group.add_values("--label", "NAME=VALUE", "a label of every metric, such as cluster=eu, repeatable")
    group.add_number(
        "--lookback",
        "COMMITS",
        f"commits before the start that are read for the lag in seconds, up to {MAX_LOOKBACK} (default "
        f"{DEFAULT_LOOKBACK})",
    )
    return options


def run(options: argparse.Namespace) -> int:
    host, port = _check(options)
    selection = _selection(options)
    coordinator = connect(options)
    from sparklog.monitoring.exporter.cluster_metrics import ClusterMetrics
    from sparklog.monitoring.exporter.collector import Collector

    clock = coordinator.log.clock
    collector = Collector(ClusterMetrics(coordinator, selection), clock, selection.labels, __version__)
    if not options.once:
        return _serve(collector, host, port, coordinator.store.root, clock)
    data = collector.read_once()
    if options.output is None:
        sys.stdout.write(data.decode())
    else:
        _replace_file(options.output, data)
    return 0


def _check(options: argparse.Namespace) -> tuple[str, int]:
    """Return host and port. Raises UsageError."""
    if options.once:
        for name in ("listen", "allow_remote"):
            if given(options, name):
                raise UsageError(f"--{name.replace('_', '-')} is for the server, which --once does not start")
    elif options.output is not None:
        raise UsageError("--output requires --once")
    host, port = parse_listen(options.listen or DEFAULT_LISTEN)
    if not is_loopback(host) and not options.allow_remote:
        raise UsageError(
            f"--listen {options.listen}: other machines could read the metrics, without password or TLS; listen on "
            "127.0.0.1 behind a proxy, or add --allow-remote"
        )
    return host, port


def _selection(options: argparse.Namespace) -> MetricSelection:
    """Return what is exported. Raises UsageError."""
    from sparklog.monitoring.exporter.cluster_metrics import MetricSelection
    from sparklog.monitoring.exporter.families import LABELS
    from sparklog.monitoring.exporter.state_samples import NameFilter

    labels = parse_pairs(options.label, "--label")
    for name, value in labels.items():
        if not _LABEL.fullmatch(name) or name in LABELS:
            why = "metrics have a label of this name" if name in LABELS else "must be letters, digits and underscores"
            raise UsageError(f"invalid --label {name!r}: {why}")
        if not value.isprintable():
            raise UsageError(f"invalid --label {name}={value!r}: the value must be text on one line, in UTF-8")
    lookback = DEFAULT_LOOKBACK if options.lookback is None else options.lookback
    if not 0 <= lookback <= MAX_LOOKBACK:
        raise UsageError(f"invalid --lookback {lookback}: must be at least 0, and at most {MAX_LOOKBACK}")
    topics, groups = (
        NameFilter(
            _regex(getattr(options, f"{what}_filter"), f"--{what}.filter", ""),
            _regex(getattr(options, f"{what}_exclude"), f"--{what}.exclude", "^$"),
        )
        for what in ("topic", "group")
    )
    return MetricSelection(topics, groups, labels, lookback, with_counters=not options.once)


def _regex(text: str | None, flag: str, default: str) -> re.Pattern[str]:
    try:
        return re.compile(default if text is None else text)
    except (re.error, RecursionError, OverflowError) as error:
        raise UsageError(f"{flag} {text!r} is an invalid regex: {error}") from error


def _serve(collector: Collector, host: str, port: int, root: str, clock: Clock) -> int:
    """Serve until SIGTERM or Ctrl-C."""
    try:
        from sparklog.monitoring.exporter.server import serving
    except ImportError as error:
        raise CommandError(
            f"the server needs a package that {sys.executable} lacks, {error.name}: pip install 'sparklog[metrics]'; "
            "--once works without it"
        ) from error
    from sparklog.maintenance.loop import SLEEP_SECONDS, Stop, repeats_logged_once, stopped_by_signals

    stop = Stop()
    with repeats_logged_once(), serving(collector, host, port) as server, stopped_by_signals(stop, lambda _: None):
        say(f"the metrics of {root} are at {url_of(host, server.server_port, '/metrics')}")
        sys.stdout.flush()
        while not stop.requested:
            clock.sleep(SLEEP_SECONDS)
    complain("stopped")
    return 0


def _replace_file(path: str, data: bytes) -> None:
    """Write a file that readers see whole, old or new. Raises CommandError."""
    temporary = f"{path}.{os.getpid()}.tmp"  # another suffix than .prom, which the collector reads
    try:
        try:
            with open(temporary, "wb") as file:
                file.write(data)
            os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CommandError(f"--output: {path} cannot be written: {reason}") from error
