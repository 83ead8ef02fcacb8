"""``sparklog groups``: Kafka's kafka-groups, a list of all groups with type and protocol.

All groups are classic: their members name the assignors. A group that has never had a member, such as that of a
streaming query, has no protocol. There are no share groups and no Streams groups.
"""

from __future__ import annotations

import argparse

from sparklog.cli.arguments.parser import CommandParser, UsageError, connect_admin, refuse_together
from sparklog.cli.output.json_output import add_json, print_document
from sparklog.cli.output.tables import table
from sparklog.types import printable

ERROR_PREFIX = "Error while executing groups command : "

TYPES = ("classic", "consumer", "share", "streams")
TYPE = "Classic"


def parser() -> CommandParser:
    options = CommandParser(
        "groups",
        "List the groups of all types.",
        "sparklog groups --bootstrap-server /data/log --list",
        "--list [OPTIONS]",
    )
    options.add_switch("--list", "list the groups")
    options.add_value("--group-type", "TYPE", "only groups of this type: classic, consumer, share, streams")
    options.add_value("--protocol", "PROTOCOL", "only groups with this protocol, such as consumer")
    options.add_switch("--consumer", "only consumer groups, including those without members")
    options.add_switch("--share", "only share groups; there are none")
    options.add_switch("--streams", "only groups of Kafka Streams; there are none")
    add_json(options)
    return options


def run(options: argparse.Namespace) -> int:
    if not options.list:
        raise UsageError("Command must include exactly one action: --list.")
    if options.group_type is not None and options.group_type.lower() not in TYPES:
        raise UsageError("--group-type must be a valid group type.")
    for name in ("consumer", "share", "streams"):
        others = [other for other in ("consumer", "group-type", "protocol", "share", "streams") if other != name]
        refuse_together(options, name, others)
    from sparklog.cli.output.documents import GroupList, GroupName

    with connect_admin(options) as admin:
        groups = [
            GroupName(group=group["group_id"], type=TYPE, protocol=group["protocol_type"])
            for group in admin.list_groups()
            if _is_wanted(options, group["protocol_type"])
        ]
    width = max([20, *(len(printable(group.group)) for group in groups)])
    rows = [("GROUP", "TYPE", "PROTOCOL"), *((group.group, group.type, group.protocol) for group in groups)]
    print_document(GroupList(groups=groups), options.json, table(rows, [width] * 3))
    return 0


def _is_wanted(options: argparse.Namespace, protocol: str) -> bool:
    if options.share or options.streams:
        return False
    if options.group_type is not None and options.group_type.lower() != TYPE.lower():
        return False
    return options.protocol is None or bool(options.protocol == protocol)
