"""``sparklog features``: Kafka's kafka-features. Describes the cluster's feature level, and raises it.

The level is that of everything stored (``protocol.levels``), under the name of Kafka's ``metadata.version``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sparklog.cli.arguments.parser import (
    CommandParser,
    UsageError,
    complain,
    connect_admin,
    given,
    refuse_together,
    require_action,
    say,
)
from sparklog.cli.output.json_output import add_json, print_document
from sparklog.errors import InvalidCallError

FEATURE = "metadata.version"
"""As ``protocol.levels.FEATURE``; that module is imported when a command runs."""

if TYPE_CHECKING:
    from sparklog.cli.output.documents import FeatureList
    from sparklog.client.admin.client import AdminClient

ACTIONS = ("describe", "upgrade", "downgrade", "version-mapping")

TAKES = {"feature": ("upgrade", "downgrade"), "feature-level": ("upgrade", "downgrade"),
         "release-version": ("upgrade", "downgrade", "version-mapping"), "dry-run": ("upgrade", "downgrade"),
         "json": ("describe",)}  # fmt: skip


def parser() -> CommandParser:
    options = CommandParser(
        "features",
        "describe         print the levels that this version writes, and the cluster's\n"
        "upgrade          raise the cluster's level; older programs stop then\n"
        "downgrade        refused, with the reason\n"
        "version-mapping  print the level of a release",
        "sparklog features upgrade --bootstrap-server /data/log --release-version 0.3.0",
        "|".join(ACTIONS) + " [OPTIONS]",
    )
    options.add_actions(ACTIONS)
    options.add_number("--feature-level", "N", "upgrade: the level (default: the newest that this version knows)")
    options.add_value("--release-version", "VERSION", "upgrade, version-mapping: the level of this release")
    options.add_value("--feature", "NAME=N", f"upgrade: the level as in Kafka, {FEATURE}=N")
    options.add_switch("--dry-run", "upgrade: say whether it can be done, and change nothing")
    add_json(options, "describe")
    return options


def run(options: argparse.Namespace) -> int:
    require_action(options.action, ACTIONS, f"{', '.join(ACTIONS[:-1])} or {ACTIONS[-1]}")
    for name, allowed in TAKES.items():
        if given(options, name) and options.action not in allowed:
            raise UsageError(f'Option "[{name}]" can\'t be used with option "[{options.action}]"')
    for name, others in (("feature", ("feature-level", "release-version")), ("feature-level", ("release-version",))):
        refuse_together(options, name, others)
    if options.action == "version-mapping":
        from sparklog.protocol.levels import needs_of

        level = _level_of(options)
        say(f"{FEATURE}={level} ({needs_of(level)})")
        return 0
    with connect_admin(options) as admin:
        if options.action == "describe":
            features = _describe(admin)
            print_document(features, options.json, _lines(features))
            return 0
        return _update(admin, _asked_level(options), options.action, options.dry_run)


def _asked_level(options: argparse.Namespace) -> int:
    if options.feature is not None:
        name, _, text = options.feature.partition("=")
        if name != FEATURE or not text.isdecimal() or len(text) > 4:
            raise UsageError(f"Can't parse feature=level string {options.feature}: give {FEATURE}=N")
        return int(text)
    if options.feature_level is not None:
        return int(options.feature_level)
    if options.action == "downgrade" and options.release_version is None:
        from sparklog.protocol.levels import FIRST

        return FIRST
    return _level_of(options)


def _level_of(options: argparse.Namespace) -> int:
    from sparklog.client.cluster import level_of

    return level_of(options.release_version)


def _update(admin: AdminClient, level: int, action: str, dry_run: bool) -> int:
    from sparklog.client.admin.security import UpdateFeatureType

    kind = UpdateFeatureType.UPGRADE if action == "upgrade" else UpdateFeatureType.SAFE_DOWNGRADE
    if admin.describe_features()["finalized_features"][FEATURE][1] == level:
        say(f"{FEATURE} is {level} already.")
        return 0
    try:
        admin.update_features({FEATURE: (kind, level)}, validate_only=dry_run)
    except InvalidCallError as error:
        complain(f"Could not {action} {FEATURE} to {level}. {error}")
        return 1
    say(f"{FEATURE} {'can be' if dry_run else 'was'} {action}d to {level}.")
    return 0


def _describe(admin: AdminClient) -> FeatureList:
    from sparklog.cli.output.documents import FeatureDetails, FeatureList

    described = admin.describe_features()
    return FeatureList(
        features=[
            FeatureDetails(
                feature=name,
                supported_min_version=lowest,
                supported_max_version=highest,
                finalized_version_level=described["finalized_features"][name][1],
                epoch=described["finalized_features_epoch"],
            )
            for name, (lowest, highest) in described["supported_features"].items()
        ]
    )


def _lines(features: FeatureList) -> Iterator[str]:
    for each in features.features:
        yield (
            f"Feature: {each.feature}\tSupportedMinVersion: {each.supported_min_version}"
            f"\tSupportedMaxVersion: {each.supported_max_version}"
            f"\tFinalizedVersionLevel: {each.finalized_version_level}\tEpoch: {each.epoch}"
        )
