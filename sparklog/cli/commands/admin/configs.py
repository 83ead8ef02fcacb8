"""``sparklog configs``: Kafka's kafka-configs, for topics and for the cluster's defaults.

Single brokers have no settings: they are storage locations. What Kafka calls the default config for brokers
(``--broker-defaults``) are the settings of the cluster.
"""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from sparklog.cli.arguments.parser import (
    CommandParser,
    UsageError,
    complain,
    connect_admin,
    given,
    read_command_config,
    read_properties_file,
    refuse_controller,
    refuse_together,
    say,
    use_kafka_exit_codes,
)
from sparklog.cli.output.json_output import add_json, print_document

if TYPE_CHECKING:
    from sparklog.client.admin.client import AdminClient

TYPES = ("topics", "brokers")
ELSEWHERE = ("broker-loggers", "users", "clients", "ips", "client-metrics", "groups")
"""Kafka's other entity types."""

_FLAGS = ("topic", "broker", "client", "user", "broker_logger", "ip", "group", "client_metrics")
_DEFAULT_FLAGS = ("broker_defaults", "client_defaults", "user_defaults", "ip_defaults")
_OUTSIDE_BRACKETS = r"(?=[^\]]*(?:\[|$))"
"""Kafka's regular expression for ignoring commas and equals signs between brackets."""


def parser() -> CommandParser:
    options = CommandParser(
        "configs",
        "Describe and alter the settings of topics, and the cluster's defaults for them.",
        "sparklog configs --bootstrap-server /data/log --alter --topic orders \\\n"
        "      --add-config 'retention.ms=86400000,cleanup.policy=[compact,delete]'",
        "--describe|--alter ENTITY [OPTIONS]",
    )
    options.add_switch("--describe", "print settings")
    options.add_switch("--alter", "change settings")
    options.add_switch("--all", "with --describe: also print the defaults")
    entity = options.add_group("Entity")
    entity.add_value("--topic", "TOPIC", "this topic")
    entity.add_switch("--broker-defaults", "the cluster's defaults")
    entity.add_value("--broker", "ID", "a broker, to describe the settings in effect")
    entity.add_values("--entity-type", "TYPE", "topics or brokers")
    entity.add_values("--entity-name", "NAME", "its name, or its id")
    entity.add_switch("--entity-default", "brokers: the cluster's defaults")
    change = options.add_group("With --alter")
    change.add_value("--add-config", "K=V,K=[A,B]", "settings to set; brackets around values with commas")
    change.add_value("--add-config-file", "FILE", "a properties file of settings to set")
    change.add_value("--delete-config", "K,K", "settings to reset to their defaults")
    add_json(options, "--describe")
    options.add_controller()
    refused = options.add_group("Kafka's other entities, which have no settings here")
    for flag in ("--client", "--user", "--broker-logger", "--ip", "--group", "--client-metrics"):
        refused.add_argument(flag, metavar="NAME")
    for flag in ("--client-defaults", "--user-defaults", "--ip-defaults"):
        refused.add_argument(flag, action="store_true")
    return options


def run(options: argparse.Namespace) -> int:
    kind, name = _entity(options)
    if kind in ELSEWHERE:  # only with Kafka's exit codes
        say(f"The {kind.removesuffix('s')} '{name or ''}' doesn't exist and doesn't have dynamic config.")
        return 0
    changes, deletions = _changes(options) if options.alter else ({}, [])
    with connect_admin(options) as admin:
        if options.alter:
            _alter(admin, kind, name or "", changes, deletions)
        else:
            _describe(admin, kind, name, options)
    return 0


# -- options


def _entity(options: argparse.Namespace) -> tuple[str, str | None]:
    """Return type and name: "" for the default entity, None for all. Raises UsageError as Kafka's checkArgs does."""
    read_command_config(options)  # first, as Kafka's tool does
    if options.alter == options.describe:
        raise UsageError("Command must include exactly one action: --describe, --alter")
    for name in ("add-config", "add-config-file", "delete-config"):
        refuse_together(options, name, ["describe"])
    refuse_together(options, "all", ["alter"])
    refuse_together(options, "json", ["alter"])
    refuse_controller(options)
    flags = [(_kind(flag), str(getattr(options, flag))) for flag in _FLAGS if given(options, flag)]
    flags += [(_kind(flag), "") for flag in _DEFAULT_FLAGS if given(options, flag)]
    general = options.entity_type or options.entity_name or options.entity_default
    if flags and general:
        raise UsageError("--entity-{type,name,default} should not be used in conjunction with specific entity flags")
    entities = flags or _general_entity(options)
    if not entities:
        raise UsageError("At least one entity type must be specified")
    if len(entities) > 1:
        raise UsageError(f"Only one entity may be specified, not {', '.join(kind for kind, _ in entities)}")
    return _check_entity(options, *entities[0])


def _kind(flag: str) -> str:
    """Return the type that Kafka has for an entity: ``client_defaults`` are of ``clients``."""
    return flag.removesuffix("_defaults").removesuffix("s").replace("_", "-") + "s"


def _general_entity(options: argparse.Namespace) -> list[tuple[str, str | None]]:
    names: list[str | None] = list(options.entity_name or [])
    if options.entity_default:
        names.append("")
    kinds = options.entity_type or []
    if len(names) > len(kinds):
        raise UsageError("More entity names specified than entity types")
    return list(zip(kinds, names + [None] * (len(kinds) - len(names)), strict=True))


def _check_entity(options: argparse.Namespace, kind: str, name: str | None) -> tuple[str, str | None]:
    if kind in ELSEWHERE and options.describe and use_kafka_exit_codes(options):
        return kind, name
    if kind in ELSEWHERE:
        raise UsageError(f"entities of type {kind} have no settings here: only topics and brokers do")
    if kind not in TYPES:
        raise UsageError(f"Invalid entity type {kind}, the entity type must be one of {', '.join(TYPES)}")
    if kind == "topics" and name == "":
        raise UsageError("--entity-default must not be specified with topics: their defaults are --broker-defaults")
    if kind == "brokers" and name and not (name.isascii() and name.isdigit()):
        raise UsageError(f"The entity name for brokers must be a valid integer broker id, but it is: {name}")
    if options.alter:
        if name is None:
            raise UsageError(f"An entity name must be specified with --alter of {kind}")
        if kind == "brokers" and name:
            raise UsageError(
                f"broker {name} has no settings of its own, because it is a storage location; use --broker-defaults"
            )
    return kind, name


def _changes(options: argparse.Namespace) -> tuple[dict[str, str], list[str]]:
    """Return the settings to set and those to delete. Raises UsageError."""
    if options.add_config is not None and options.add_config_file is not None:
        raise UsageError("Only one of --add-config or --add-config-file must be specified")
    if options.add_config is None and options.add_config_file is None and options.delete_config is None:
        raise UsageError(
            "At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter"
        )
    changes: dict[str, str] = {}
    if options.add_config_file is not None:
        changes = read_properties_file(options.add_config_file, "--add-config-file")
    if options.add_config is not None:
        changes = parse_add_config(options.add_config)
    deletions = [name.strip() for name in (options.delete_config or "").split(",") if name.strip()]
    both = sorted(changes.keys() & set(deletions))
    if both:
        raise UsageError(f"duplicate config keys: {', '.join(both)} cannot be set and deleted in one call")
    return changes, list(dict.fromkeys(deletions))


def parse_add_config(text: str) -> dict[str, str]:
    """Parse Kafka's syntax ``k=v,k2=[a,b]``. Raises UsageError."""
    changes: dict[str, str] = {}
    for pair in re.split("," + _OUTSIDE_BRACKETS, text):
        parts = re.split(r"\s*=\s*" + _OUTSIDE_BRACKETS, pair)
        if len(parts) != 2:
            hint = " Use --add-config-file for JSON." if "{" in text else ""
            raise UsageError(
                'Invalid entity config: all configs to be added must be in the format "key=val" or "key=[val1,val2]" '
                f"to group values which contain commas.{hint}"
            )
        changes[parts[0].strip()] = parts[1].replace("[", "").replace("]", "").strip()
    return changes


# -- alter


def _alter(admin: AdminClient, kind: str, name: str, changes: dict[str, str], deletions: list[str]) -> None:
    from sparklog.client.admin.types import AlterConfigOp, ConfigResource

    state = admin.read_state()
    before = state.configs if kind == "brokers" else state.topic(name).configs
    absent = [deletion for deletion in deletions if deletion not in before]
    configs = {**changes, **dict.fromkeys(deletions, (AlterConfigOp.DELETE, ""))}
    resource = ConfigResource(kind.removesuffix("s"), name, configs)
    admin.alter_configs([resource], raise_on_unknown=False, raise_errors=True)
    if absent:  # not an error, so that a roll-out can be repeated
        complain(f"Note: nothing to delete, these settings are not set: {', '.join(absent)}")
    if kind == "topics":
        say(f"Completed updating config for topic {name}.")
    else:
        print("Completed updating default config for brokers in the cluster.")


# -- describe


def _describe(admin: AdminClient, kind: str, name: str | None, options: argparse.Namespace) -> None:
    from sparklog.cli.output import config_listing

    describe = config_listing.topics if kind == "topics" else config_listing.brokers
    descriptions = describe(admin.read_state(), name, options.all)
    if not descriptions.entities and name and not options.json:
        say(f"The {kind.rstrip('s')} '{name}' doesn't exist and doesn't have dynamic config.")
    print_document(descriptions, options.json, config_listing.lines(descriptions, options.all))
