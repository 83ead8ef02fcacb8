"""``sparklog applications``: the applications whose numbered writes the cluster remembers, so as not to repeat one.

An application is a ``txnAppId``, or a streaming query by its id. Kafka has no such thing.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sparklog.cli.common import CommandParser, UsageError, complain, connect, say
from sparklog.cli.json_output import add_json, print_json
from sparklog.types import printable

if TYPE_CHECKING:
    from sparklog.coordinator import Coordinator

NARROWEST = 20


def parser() -> CommandParser:
    options = CommandParser(
        "applications",
        "List the applications (txnAppId, streaming query ids) whose newest write is remembered, and forget some.",
        "sparklog applications --bootstrap-server /data/log --list",
        "(--list | --delete --application ID) [OPTIONS]",
    )
    options.add_connection()
    options.add_argument("--list", action="store_true", help="list the applications")
    options.add_argument(
        "--delete", action="store_true", help="forget some: a write of theirs that is repeated is stored twice then"
    )
    options.add_argument(
        "--application", metavar="ID", action="append", help="--delete: the application; may be repeated"
    )
    add_json(options, "--list")
    return options


def run(options: argparse.Namespace) -> int:
    if options.list == options.delete:
        raise UsageError("Command must include exactly one action: --list, --delete.")
    if options.delete and not options.application:
        raise UsageError('Missing required argument "[application]"')
    if options.list and options.application:
        raise UsageError("--application does not belong to --list")
    if options.delete and options.json:
        raise UsageError("--json does not belong to --delete")
    coordinator = connect(options)
    if options.list:
        _list(coordinator, options.json)
        return 0
    from sparklog.errors import NotFoundError
    from sparklog.protocol.decide_expiry import forget_applications

    try:
        coordinator.submit(lambda state: forget_applications(state, options.application))
    except NotFoundError as error:
        complain(f"Failed to delete: {error}")
        return 1
    for name in dict.fromkeys(options.application):
        say(f"Deleted application {name}.")
    return 0


def _list(coordinator: Coordinator, as_json: bool) -> None:
    from sparklog.cli.documents import ApplicationDetails, ApplicationList

    found = [
        ApplicationDetails(application=name, version=one.version, commit_version=one.commit_version)
        for name, one in sorted(coordinator.state.applications.items())
    ]
    if as_json:
        print_json(ApplicationList(applications=found))
        return
    names = [printable(one.application) for one in found]
    wide = max([NARROWEST, *map(len, names)])
    print(f"{'APPLICATION'.ljust(wide)} {'VERSION'.ljust(NARROWEST)} COMMIT")
    for name, one in zip(names, found, strict=True):
        print(f"{name.ljust(wide)} {str(one.version).ljust(NARROWEST)} {one.commit_version}")
