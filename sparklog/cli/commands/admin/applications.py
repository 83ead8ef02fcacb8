"""``sparklog applications``: lists and forgets the applications whose write numbers the cluster remembers.

The cluster remembers them so that a repeated write is not stored twice. An application is a ``txnAppId`` or the id of
a streaming query. Kafka has no such command.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sparklog.cli.arguments.parser import CommandParser, UsageError, complain, connect_admin, require, say
from sparklog.cli.output.json_output import add_json, print_document
from sparklog.cli.output.tables import table
from sparklog.errors import NotFoundError

if TYPE_CHECKING:
    from sparklog.client.admin.client import AdminClient


def parser() -> CommandParser:
    options = CommandParser(
        "applications",
        "List the applications (txnAppId, streaming query ids) whose newest write is remembered, or forget some.",
        "sparklog applications --bootstrap-server /data/log --list",
        "(--list | --delete --application ID) [OPTIONS]",
    )
    options.add_switch("--list", "list the applications")
    options.add_switch("--delete", "forget applications: a write that they repeat is then stored twice")
    options.add_values("--application", "ID", "--delete: the application, repeatable")
    add_json(options, "--list")
    return options


def run(options: argparse.Namespace) -> int:
    if options.list == options.delete:
        raise UsageError("Command must include exactly one action: --list, --delete.")
    if options.delete:
        require(options, "application")
    if options.list and options.application:
        raise UsageError("--application can't be used with --list")
    if options.delete and options.json:
        raise UsageError("--json can't be used with --delete")
    with connect_admin(options) as admin:
        if options.list:
            _list(admin, options.json)
            return 0
        try:
            admin.forget_applications(options.application)
        except NotFoundError as error:
            complain(f"Failed to delete: {error}")
            return 1
    for name in dict.fromkeys(options.application):
        say(f"Deleted application {name}.")
    return 0


def _list(admin: AdminClient, as_json: bool) -> None:
    from sparklog.cli.output.documents import ApplicationDetails, ApplicationList

    applications = [
        ApplicationDetails.of(application, application=name)
        for name, application in sorted(admin.read_state().applications.items())
    ]
    rows = [(details.application, details.version, details.commit_version) for details in applications]
    lines = table([("APPLICATION", "VERSION", "COMMIT"), *rows], [-20, 20, 0])
    print_document(ApplicationList(applications=applications), as_json, lines)
