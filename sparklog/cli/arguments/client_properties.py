"""Converts Kafka's client properties (``linger.ms=5``) to arguments of the Python clients (``linger_ms=5``).

Rules: a setting of Java's clients only, or of network connections, is ignored with a debug line; an unknown name gets
a warning on standard error, as with Kafka's clients.

Not for: the meaning of the settings (``sparklog.client``).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any

from sparklog.cli.arguments.parser import (
    STORAGE_PROPERTY_PREFIX,
    CommandParser,
    complain,
    logger,
    parse_pairs,
    read_command_config,
)
from sparklog.config.properties import trim
from sparklog.errors.suggestions import did_you_mean

JAVA_ONLY = frozenset(
    {
        "auto.include.jmx.reporter", "bootstrap.resolve.timeout.ms",
        "buffer.memory.allocation.strategy", "config.providers", "enable.metrics.push", "group.protocol",
        "group.remote.assignor", "interceptor.classes", "key.deserializer", "key.serializer",
        "metadata.max.idle.ms", "metadata.recovery.rebootstrap.trigger.ms", "metadata.recovery.strategy",
        "metrics.recording.level", "partitioner.adaptive.partitioning.enable", "partitioner.availability.timeout.ms",
        "partitioner.class", "partitioner.ignore.keys", "partitioner.rack.aware", "receive.buffer.bytes",
        "reconnect.backoff.max.ms", "reconnect.backoff.ms", "retry.backoff.max.ms", "security.providers",
        "send.buffer.bytes", "throw.on.fetch.stable.offset.unsupported",
        "transaction.two.phase.commit.enable", "value.deserializer", "value.serializer",
    }
)  # fmt: skip
_IGNORED_PREFIXES = ("bootstrap.servers", "internal.", "sasl.", "ssl.", "metrics.", "socket.", STORAGE_PROPERTY_PREFIX)
_NUMBERS = ("_ms", "_level", "_bytes")


def add_properties(options: CommandParser, config_flag: str, example: str, old_flag: str = "") -> None:
    """Add ``--command-property``, ``old_flag`` as its older name if given, and ``config_flag`` (such as
    ``--producer.config``) as an alias of ``--command-config``."""
    settings: dict[str, Any] = {"metavar": "NAME=VALUE", "action": "extend", "nargs": "+", "default": []}
    options.add_argument("--command-property", help=f"settings of the client, such as {example}", **settings)
    if old_flag:
        options.add_deprecated(old_flag, "--command-property", **settings)
    options.add_deprecated(config_flag, "--command-config", metavar="FILE")


def read_properties(options: argparse.Namespace) -> dict[str, str]:
    """Return the properties; ``--command-property`` overrides ``--command-config``. Raises UsageError."""
    properties = read_command_config(options)
    given = parse_pairs(options.command_property, "--command-property")
    properties.update({name: trim(value) for name, value in given.items()})
    if "bootstrap.servers" in properties and not options.bootstrap_server:
        options.bootstrap_server = properties["bootstrap.servers"]
    return properties


def client_arguments(properties: Mapping[str, str], defaults: Mapping[str, object]) -> dict[str, Any]:
    """Return the arguments for a client with these defaults. Values get the type of the default; the client validates
    them."""
    from sparklog.client.config import SOCKET_ARGUMENTS

    arguments: dict[str, Any] = {}
    unknown: list[str] = []
    for name, text in properties.items():
        argument = name.replace(".", "_")
        if argument in SOCKET_ARGUMENTS or name in JAVA_ONLY or name.startswith(_IGNORED_PREFIXES):
            logger.debug("client setting %s has no effect here", name)
        elif argument in defaults:
            arguments[argument] = _convert(argument, text, defaults[argument])
        else:
            unknown.append(name + did_you_mean(argument, defaults))
    if unknown:
        complain(f"WARN: These configurations '[{', '.join(unknown)}]' were supplied but are not used here.")
    return arguments


def known_properties(
    properties: Mapping[str, str], defaults: Mapping[str, str], what: str, has_no_effect: Callable[[str], bool]
) -> dict[str, str]:
    """Return the properties of ``defaults``, with these values. Others are ignored, with a warning, as by Kafka's
    tools."""
    settings = dict(defaults)
    for name, value in properties.items():
        if name in defaults:
            settings[name] = value
        elif has_no_effect(name):
            logger.debug("property %s has no effect here", name)
        else:
            complain(f"WARN: ignoring unknown property {name!r} of the {what}{did_you_mean(name, defaults)}")
    return settings


def java_assignors(text: str) -> object:
    """Parse a list of assignors as Java's consumer takes it, such as ``range,cooperative-sticky``."""
    from sparklog.client.consumer.assignors import JavaAssignors

    return JavaAssignors(item.strip() for item in text.split(",") if item.strip())


def _convert(argument: str, text: str, default: object) -> object:
    stripped = text.strip()
    if isinstance(default, bool):
        return {"true": True, "false": False}.get(stripped.lower(), text)
    if isinstance(default, tuple):  # the assignors
        return java_assignors(text)
    if isinstance(default, int | float) or (default is None and argument.endswith(_NUMBERS)):
        digits = stripped.removeprefix("-")
        is_number = digits.isascii() and digits.isdigit() and len(digits) <= 19
        return int(stripped) if is_number else text
    return text
