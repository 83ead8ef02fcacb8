"""``sparklog schemas``: lists and describes the versions of the schemas of topics. Kafka has no such command.

A schema is changed with ``sparklog configs --alter``, since it is a config of its topic.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sparklog.cli.arguments.parser import (
    CommandError,
    CommandParser,
    UsageError,
    complain,
    connect_admin,
    refuse_together,
)
from sparklog.cli.arguments.patterns import matching_topics
from sparklog.cli.output.json_output import add_json, print_document
from sparklog.cli.output.tables import table
from sparklog.clock import utc_text
from sparklog.types import printable

if TYPE_CHECKING:
    from sparklog.cli.output.documents import SchemaDescriptions, SchemaList
    from sparklog.client.admin.client import AdminClient


def parser() -> CommandParser:
    options = CommandParser(
        "schemas",
        "List and describe the versions of the schemas of topics.",
        "sparklog schemas --bootstrap-server /data/log --describe --topic orders",
        "(--list | --describe) [OPTIONS]",
    )
    options.add_switch("--list", "list the schemas of topics, with the number of versions of each")
    options.add_switch("--describe", "print the versions of the schemas")
    options.add_value("--topic", "TOPIC", "the topics; a regular expression (default: all)")
    options.add_number("--schema-version", "N", "--describe: only the version with this number")
    add_json(options, "--list, --describe")
    return options


def run(options: argparse.Namespace) -> int:
    if options.list == options.describe:
        raise UsageError("Command must include exactly one action: --list, --describe.")
    refuse_together(options, "schema-version", ["list"])
    with connect_admin(options) as admin:
        described = _describe(admin, options.topic)
    if not any(topic["schemas"] for topic in described):
        complain("no topic asked for has a schema: its value.schema and key.schema are empty")
    if options.list:
        names = _list(described)
        rows = [(each.topic, each.config, each.versions, each.current_version or "-") for each in names.schemas]
        lines = table([("TOPIC", "CONFIG", "VERSIONS", "CURRENT"), *rows], [-20, -13, 9, 0])
        print_document(names, options.json, lines)
        return 0
    versions = _versions(described, options.schema_version)
    if options.schema_version is not None and not versions.schemas:
        raise CommandError(
            f"no schema has a version {options.schema_version}; `sparklog schemas --list` shows how many each has"
        )
    print_document(versions, options.json, _lines(versions))
    return 0


def _describe(admin: AdminClient, pattern: str | None) -> list[dict[str, Any]]:
    """Return what ``describe_schemas`` says of the topics that match."""
    if pattern is None:
        return admin.describe_schemas()
    names = matching_topics(admin.list_topics(), pattern, exclude_internal=False)
    if not names:
        raise CommandError(f"Topic '{pattern}' does not exist as expected")
    return admin.describe_schemas(names)


def _list(described: list[dict[str, Any]]) -> SchemaList:
    from sparklog.cli.output.documents import SchemaDetails, SchemaList

    schemas = [
        SchemaDetails(
            topic=topic["name"],
            config=schema["config"],
            versions=len(schema["versions"]),
            current_version=schema["current_version"],
        )
        for topic in described
        for schema in topic["schemas"]
    ]
    return SchemaList(schemas=schemas)


def _versions(described: list[dict[str, Any]], only: int | None) -> SchemaDescriptions:
    from sparklog.cli.output.documents import SchemaDescriptions, SchemaVersionDetails

    versions = [
        SchemaVersionDetails(
            topic=topic["name"],
            config=schema["config"],
            is_current=version["version"] == schema["current_version"],
            **version,
        )
        for topic in described
        for schema in topic["schemas"]
        for version in schema["versions"]
        if only in (None, version["version"])
    ]
    return SchemaDescriptions(schemas=versions)


def _lines(described: SchemaDescriptions) -> Iterator[str]:
    for each in described.schemas:
        current = "yes" if each.is_current else "no"
        yield (
            f"Topic: {printable(each.topic)}\tConfig: {each.config}\tVersion: {each.version}\tCurrent: {current}"
            f"\tCommit: {each.commit_version}\tTime: {utc_text(each.timestamp_ms)}\tSchema: {printable(each.schema)}"
        )
