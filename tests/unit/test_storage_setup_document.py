"""The S3 policies in docs/storage-setup.md grant exactly what docs/storage.md says that a role needs or may do."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.unit.test_least_privilege import ROLES, Role

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "storage-setup.md"
POLICIES = [json.loads(text) for text in re.findall(r"^```json\n(.*?)^```$", DOCUMENT.read_text(), re.M | re.S)]
ACTIONS = {
    "reads": "s3:GetObject",
    "creates": "s3:PutObject",
    "overwrites": "s3:PutObject",
    "deletes": "s3:DeleteObject",
}
PREFIX = "arn:aws:s3:::bucket/log/"


def granted(policy: dict[str, list[dict[str, object]]]) -> set[tuple[str, str]]:
    return {
        (action, resource)
        for statement in policy["Statement"]
        for action in listed(statement["Action"])
        for resource in listed(statement["Resource"])
        if action in ACTIONS.values()
    }


def listed(value: object) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else [str(value)]


def wanted(*roles: Role) -> set[tuple[str, str]]:
    rights = {right for role in roles for right in role.needs | role.may}
    return {(ACTIONS[verb], resource(key)) for verb, key in rights}


def resource(key: str) -> str:
    key = key.replace("<topic>-N/", "*-*/")
    return PREFIX + (key + "*" if key.endswith("/") else key)


@pytest.mark.parametrize(("policy", "roles"), [(POLICIES[0], ["reader"]), (POLICIES[1], ["producer", "group member"])])
def test_a_policy_grants_the_rights_of_its_roles(policy: dict[str, list[dict[str, object]]], roles: list[str]) -> None:
    assert granted(policy) == wanted(*(ROLES[name] for name in roles))


def test_each_policy_allows_listing_only_below_the_root() -> None:
    for policy in POLICIES:
        (listing,) = [statement for statement in policy["Statement"] if statement["Action"] == "s3:ListBucket"]
        assert listing["Condition"] == {"StringLike": {"s3:prefix": "log/*"}}
