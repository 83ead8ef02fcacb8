"""The policies in ``conf/policies/s3``, enforced by a server: what a role does works, all else is refused."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from sparklog.client.producer.producer import Producer
from sparklog.clock import ManualClock, SystemClock
from sparklog.coordinator import create_cluster
from sparklog.errors import SparklogError, StoragePermissionError
from sparklog.store.process_local import start_over
from sparklog.store.s3 import S3Store
from tests.cluster.test_least_privilege import ACTS, ROLES, Right, Role, covers, fill
from tests.minio import Credentials, Minio, Policy, minio_server

__all__ = ["minio_server"]  # a fixture

pytestmark = pytest.mark.s3

CHECKOUT = Path(__file__).resolve().parents[2]

NEEDED = {
    "reader": ["reader"],
    "committer": ["producer"],
    "group member": ["consumer"],
    "producer": ["producer"],
    "transactional producer": ["producer"],
    "topic admin": ["topic-admin"],
    "maintainer": ["maintainer"],
    "owner": ["owner"],
}
"""The policies of each role."""

GRANTS = {
    "reader": ["reader"],
    "reader-leases": ["reader"],
    "consumer": ["group member"],
    "producer": ["producer"],
    "topic-admin": ["topic admin"],
    "maintainer": ["maintainer"],
    "owner": ["owner"],
}
"""The roles whose rights each policy has."""

KEYS = (
    *("cluster.json", "locations.json", "broker.json", "other.json"),
    *("meta/clock", "meta/boundary.json", "meta/fsck.json", "meta/commits/1", "meta/actions/1", "meta/checkpoints/1"),
    *("meta/removed/1", "meta/rollups/1", "meta/probed/1"),
    *("orders-0/1.log", "tables/orders/1", "leases/readers/1", "leases/groups/1", "leases/brokers/1", "elsewhere/1"),
)
"""One object of each kind."""


@pytest.fixture(scope="module")
def objects(minio_server: Minio) -> str:
    """A folder with an object of each kind, and one outside."""
    store = S3Store(f"s3://{minio_server.bucket}/kinds", minio_server.options())
    for key in KEYS:
        store.put(key, b"1")
    S3Store(f"s3://{minio_server.bucket}/kinds-of-others", minio_server.options()).put("orders-0/1.log", b"1")
    return "kinds"


def is_allowed(call: Callable[[], object]) -> bool:
    try:
        result = call()
        if isinstance(result, Iterator):
            list(result)
    except StoragePermissionError:
        return False
    return True


def is_granted(rights: set[Right], verbs: tuple[str, ...], key: str) -> bool:
    return any(verb in verbs and covers(pattern, key) for verb, pattern in rights)


@pytest.mark.parametrize("policy", GRANTS)
def test_policy_allows_what_the_table_of_roles_says_and_nothing_else(
    policy: str, minio_server: Minio, objects: str
) -> None:
    (role,) = (ROLES[name] for name in GRANTS[policy])
    rights = {"reader": role.needs, "reader-leases": role.may}.get(policy, role.needs | role.may)
    user = minio_server.create_user(f"only-{policy}", objects, policy)
    store = S3Store(f"s3://{minio_server.bucket}/{objects}", minio_server.options(user))
    attempts: dict[tuple[str, ...], Callable[[str], object]] = {
        ("reads",): store.get,
        ("creates", "overwrites"): partial(store.put, data=b"1"),
        ("deletes",): store.delete,
    }
    for verbs, attempt in attempts.items():
        with ThreadPoolExecutor(8) as threads:
            allowed = dict(zip(KEYS, threads.map(is_allowed, [partial(attempt, key) for key in KEYS]), strict=True))
        assert allowed == {key: is_granted(rights, verbs, key) for key in KEYS}, verbs
        restore = S3Store(f"s3://{minio_server.bucket}/{objects}", minio_server.options())
        for key in KEYS:
            restore.put(key, b"1")
    assert is_allowed(partial(store.list, "")) == (policy != "reader-leases")
    for other in (minio_server.bucket + "/kinds-of-others", minio_server.bucket):
        outside = S3Store(f"s3://{other}", minio_server.options(user))
        assert not is_allowed(partial(outside.list, ""))
        assert not is_allowed(partial(outside.get, "orders-0/1.log"))
        assert not is_allowed(partial(outside.put, "orders-0/1.log", b"2"))


# -- the work of each role


def open_root(server: Minio, folder: str, user: Credentials) -> S3Store:
    start_over()  # as a process of its own does
    return S3Store(f"s3://{server.bucket}/{folder}", server.options(user))


@pytest.fixture(scope="module")
def root(minio_server: Minio) -> str:
    """A root for roles that leave its records as they are."""
    fill(S3Store(f"s3://{minio_server.bucket}/shared", minio_server.options()), SystemClock())
    return "shared"


def folder_of(role: str, server: Minio) -> str:
    """A root of its own for this role; the owner creates one."""
    folder = f"of-{role.replace(' ', '-')}"
    if role != "owner":
        start_over()
        fill(S3Store(f"s3://{server.bucket}/{folder}", server.options()), SystemClock())
    return folder


@pytest.mark.parametrize("role", NEEDED)
def test_role_works_with_its_policy(role: str, minio_server: Minio) -> None:
    folder = folder_of(role, minio_server)
    user = minio_server.create_user(role.replace(" ", "-"), folder, *NEEDED[role])
    ACTS[role](open_root(minio_server, folder, user), ManualClock(SystemClock().now_ms()))


def test_temporary_credentials_of_a_role_work_as_its_own(minio_server: Minio, root: str) -> None:
    user = minio_server.create_user("caller", root, "reader")
    temporary = minio_server.assume_role(user=user)
    ACTS["reader"](open_root(minio_server, root, temporary), ManualClock(SystemClock().now_ms()))
    with pytest.raises(StoragePermissionError, match="s3:PutObject"):
        open_root(minio_server, root, temporary).put("meta/clock", b"1")


# -- missing rights

ACTIONS = {
    "reads": "s3:GetObject",
    "creates": "s3:PutObject",
    "overwrites": "s3:PutObject",
    "deletes": "s3:DeleteObject",
    "lists": "s3:ListBucket",
}

MISSING = [
    *[("reader", right) for right in sorted(ROLES["reader"].own)],
    ("reader", ("lists", "")),
    ("committer", ("creates", "meta/commits/")),
    ("group member", ("reads", "leases/groups/")),
    ("group member", ("overwrites", "leases/groups/")),
    ("producer", ("overwrites", "<topic>-N/")),
    ("producer", ("creates", "meta/commits/")),
    ("transactional producer", ("creates", "meta/commits/")),
    ("topic admin", ("overwrites", "meta/removed/")),
    ("maintainer", ("overwrites", "leases/")),
    ("maintainer", ("overwrites", "meta/removed/")),
    ("maintainer", ("overwrites", "tables/")),
    ("owner", ("creates", "cluster.json")),
    ("owner", ("overwrites", "locations.json")),
]
"""Roles, each with a right that it is not given."""


def restrict(role: Role, without: Right, bucket: str, folder: str) -> Policy:
    """The policy of a role without a right."""
    objects = f"arn:aws:s3:::{bucket}/{folder}/"
    granted: dict[str, set[str]] = {"s3:AbortMultipartUpload": {objects + "*"}}
    for verb, key in role.needs | role.may:
        if ACTIONS[verb] != ACTIONS[without[0]] or (key != "*" and not key.startswith(without[1])):
            key = key.replace("<topic>-N/", "*-*/")
            granted.setdefault(ACTIONS[verb], set()).add(objects + (key + "*" if key.endswith("/") else key))
    if without[0] != "lists":
        granted["s3:ListBucket"] = {f"arn:aws:s3:::{bucket}"}
    granted["s3:ListBucketMultipartUploads"] = {f"arn:aws:s3:::{bucket}"}
    statements = [{"Effect": "Allow", "Action": [a], "Resource": sorted(keys)} for a, keys in granted.items()]
    return {"Version": "2012-10-17", "Statement": statements}


@pytest.mark.parametrize(("role", "right"), MISSING, ids=[" ".join((role, *right)) for role, right in MISSING])
def test_missing_right_is_named_with_the_object(role: str, right: Right, minio_server: Minio, root: str) -> None:
    folder = root if role == "reader" else f"no-{MISSING.index((role, right))}"
    if folder != root and role != "owner":
        start_over()
        fill(S3Store(f"s3://{minio_server.bucket}/{folder}", minio_server.options()), SystemClock())
    user = minio_server.assume_role(restrict(ROLES[role], right, minio_server.bucket, folder))
    with pytest.raises((SparklogError, AssertionError)) as caught:
        ACTS[role](open_root(minio_server, folder, user), ManualClock(SystemClock().now_ms()))
    text = str(caught.value)
    key = re.escape(right[1]).replace("<topic>", "[a-z]+").replace("N/", "[0-9]+/")
    place = re.escape(f"s3://{minio_server.bucket}/{folder}/") + key
    assert re.search(f"{place}.*AccessDenied.*the credentials lack {ACTIONS[right[0]]} on it; conf/policies/s3", text)
    assert "corrupt" not in text
    assert "\n" not in text.partition("\nassert")[0] or role == "maintainer"


# -- as documented


def test_the_documented_commands_make_a_producer(minio_server: Minio, tmp_path: Path) -> None:
    """The lines of docs/storage-setup.md, word for word: a user gets a policy from conf/."""
    page = (CHECKOUT / "docs" / "storage-setup.md").read_text()
    commands = re.findall(r"^    ((?:sed|mc) .+)$", page, re.M)
    assert len(commands) == 3
    (tmp_path / "conf").symlink_to(CHECKOUT / "conf")
    (tmp_path / "mc").symlink_to(minio_server.program)
    minio_server.mc("mb", "local/bucket")
    root = "s3://bucket/log"
    create_cluster(root, minio_server.options()).create_topic("orders")
    user = Credentials("orders-service", "secret-of-orders")
    minio_server.mc("admin", "user", "add", "local", user.key, user.secret)
    environment = {**minio_server.variables, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for command in commands:
        subprocess.run(["bash", "-c", command], cwd=tmp_path, env=environment, check=True, timeout=60)
    start_over()
    with Producer(bootstrap_servers=root, storage_options=minio_server.options(user)) as producer:
        assert producer.send("orders", b"1").get(60).offset == 0
    with pytest.raises(SparklogError, match="lack s3:PutObject on it"):
        S3Store(root, minio_server.options(user)).put("tables/x", b"1")
