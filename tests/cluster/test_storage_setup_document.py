"""The S3 policies in conf/policies/s3 grant exactly what docs/storage.md says that a role needs or may do, and
docs/storage-setup.md names them all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.test_least_privilege import ROLES, Right

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "storage-setup.md"
POLICIES = {path.stem: json.loads(path.read_text()) for path in (ROOT / "conf" / "policies" / "s3").glob("*.json")}
ACTIONS = {
    "reads": "s3:GetObject",
    "creates": "s3:PutObject",
    "overwrites": "s3:PutObject",
    "deletes": "s3:DeleteObject",
}
PREFIX = "arn:aws:s3:::BUCKET/FOLDER/"
ROLE_OF = {
    "consumer": "group member",
    "producer": "producer",
    "topic-admin": "topic admin",
    "maintainer": "maintainer",
    "owner": "owner",
}
LONGEST_POLICY = 2048
"""characters without white space of a policy that is written into a user, or passed for temporary credentials."""


def granted(policy: dict[str, list[dict[str, Any]]]) -> set[tuple[str, str]]:
    return {
        (action, resource)
        for statement in policy["Statement"]
        for action in statement["Action"]
        for resource in statement["Resource"]
        if action in ACTIONS.values()
    }


def wanted(rights: set[Right]) -> set[tuple[str, str]]:
    return {(ACTIONS[verb], resource(key)) for verb, key in rights}


def resource(key: str) -> str:
    if key == "*":
        return f"{PREFIX}*"
    key = key.replace("<topic>-N/", "*-*/")
    return PREFIX + (key + "*" if key.endswith("/") else key)


def without_covered(rights: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """The rights without those that a right to everything includes."""
    everything = {action for action, key in rights if key == f"{PREFIX}*"}
    return {(action, key) for action, key in rights if action not in everything or key == f"{PREFIX}*"}


def test_there_is_a_policy_for_each_role() -> None:
    assert set(POLICIES) == {*ROLE_OF, "reader", "reader-leases"}


def test_the_policy_for_reading_grants_no_right_to_write() -> None:
    assert granted(POLICIES["reader"]) == wanted(ROLES["reader"].needs)
    assert {action for action, _ in granted(POLICIES["reader"])} == {"s3:GetObject"}


def test_the_policy_for_leases_grants_what_a_reader_may_do_besides() -> None:
    assert granted(POLICIES["reader-leases"]) == wanted(ROLES["reader"].may)


@pytest.mark.parametrize("name", ROLE_OF)
def test_a_policy_grants_the_rights_of_its_role(name: str) -> None:
    role = ROLES[ROLE_OF[name]]
    assert granted(POLICIES[name]) == without_covered(wanted(role.needs | role.may))


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_a_policy_allows_listing_only_below_the_root(name: str) -> None:
    listings = [one for one in POLICIES[name]["Statement"] if "s3:ListBucket" in one["Action"]]
    conditions = [one["Condition"] for one in listings]
    assert conditions == ([] if name == "reader-leases" else [{"StringLike": {"s3:prefix": "FOLDER/*"}}])


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_a_policy_fits_where_policies_go(name: str) -> None:
    assert len(json.dumps(POLICIES[name], separators=(",", ":"))) <= LONGEST_POLICY - 200  # for the names filled in


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_the_document_names_each_policy(name: str) -> None:
    assert f"`{name}.json`" in DOCUMENT.read_text()
