"""``sparklog ui``: a web page that shows clusters. Needs the extra ``ui``."""

from __future__ import annotations

import argparse
import importlib.util

from sparklog.cli.arguments.listen import parse_listen
from sparklog.cli.arguments.parser import (
    CommandParser,
    UsageError,
    bootstrap_server,
    check_root,
    given,
    read_command_config,
    say,
    storage_options,
)

DEFAULT_ADDRESS = "127.0.0.1:8484"
LIBRARIES = ("starlette", "uvicorn", "jinja2")


def parser() -> CommandParser:
    options = CommandParser(
        "ui",
        "Serve a web page that shows clusters: topics, records, groups and their lag, brokers, commits, maintenance.\n"
        "It reads the clusters, and changes nothing without --allow-changes.",
        "sparklog ui /data/log s3://bucket/log --listen 127.0.0.1:8484",
        "[ROOT …] [OPTIONS]",
    )
    options.add_argument("roots", nargs="*", metavar="ROOT", help="roots of clusters (default: --bootstrap-server)")
    options.add_value(
        "--listen",
        "HOST:PORT",
        f"the address to serve at (default {DEFAULT_ADDRESS}); port 0 takes a free one",
        default=DEFAULT_ADDRESS,
    )
    options.add_value("--rules", "FILE", "alert rules, in TOML, to evaluate and show (docs/alerts.md)")
    options.add_value("--state", "FILE", "an SQLite file that keeps what fires (default: the rules' name with .state)")
    access = options.add_group("Who may see it; required unless --listen is an address of this machine alone")
    access.add_value("--token-file", "FILE", "a file with the token that a browser signs in with")
    access.add_value("--proxy-header", "NAME", "the header in which a proxy names the user that it has signed in")
    access.add_values("--proxy-from", "ADDRESS", "the IP address of that proxy; requests of others are refused")
    access.add_values("--allow-host", "NAME", "a host name by which browsers reach the page, such as that of the proxy")
    access.add_switch(
        "--allow-changes", "also change clusters: topics, configs, offsets, records; each after a confirmation"
    )
    access.add_switch("--https", "a proxy serves the page by HTTPS: cookies are sent over HTTPS only")
    return options


def run(options: argparse.Namespace) -> int:
    host, port = parse_listen(options.listen)
    if given(options, "state") and not options.rules:
        raise UsageError("--state requires --rules")
    roots, client_options = _roots(options)
    for name in LIBRARIES:
        if importlib.util.find_spec(name) is None:
            raise UsageError(f"sparklog ui needs {name}: pip install 'sparklog[ui]'")
    from sparklog.ui.server import Settings, serve

    settings = Settings(
        roots=roots,
        host=host,
        port=port,
        storage_options=client_options,
        token_file=options.token_file or "",
        allowed_hosts=options.allow_host,
        proxy_header=options.proxy_header or "",
        proxies=options.proxy_from,
        secure_cookies=options.https,
        allow_changes=options.allow_changes,
        rules=options.rules or "",
        state=options.state or "",
    )
    serve(settings, lambda url: say(f"Serving {url}; Ctrl-C stops it."))
    return 0


def _roots(options: argparse.Namespace) -> tuple[list[str], dict[str, object]]:
    """Return the roots and the options of their storage. Raises UsageError."""
    if not options.roots:
        root, client_options = bootstrap_server(options)
        return [root], client_options
    if given(options, "bootstrap-server"):
        raise UsageError("give the roots as arguments or as --bootstrap-server, not both")
    for root in options.roots:
        check_root(root)
    return options.roots, storage_options(options, read_command_config(options))
