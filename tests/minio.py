"""MinIO for the tests: users with the policies of ``conf/policies/s3``, and temporary credentials with any policy."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from scripts.servers import minio
from scripts.servers.common import Skipped

POLICIES = Path(__file__).resolve().parents[1] / "conf" / "policies" / "s3"

Policy = dict[str, Any]


class Credentials(NamedTuple):
    key: str
    secret: str
    token: str | None = None


class Minio:
    """A running server, and what its administrator can do."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.variables = {**os.environ, **environment}
        self.program = environment["SPARKLOG_TEST_MINIO_MC"]
        self.endpoint = environment["SPARKLOG_TEST_MINIO_ENDPOINT"]
        self.region = environment["SPARKLOG_TEST_MINIO_REGION"]
        self.bucket = environment["SPARKLOG_TEST_MINIO_BUCKET"]
        self.root = Credentials(environment["SPARKLOG_TEST_MINIO_KEY"], environment["SPARKLOG_TEST_MINIO_SECRET"])

    def options(self, credentials: Credentials | None = None, **changed: Any) -> dict[str, Any]:
        """Storage options for these credentials, by default the administrator's."""
        user = credentials or self.root
        options = {"endpoint_url": self.endpoint, "key": user.key, "secret": user.secret}
        if user.token:
            options["token"] = user.token
        return {**options, "client_kwargs": {"region_name": self.region}, **changed}

    def environment(self, credentials: Credentials | None = None) -> dict[str, str]:
        """The same in the environment of a program."""
        user = credentials or self.root
        names = {"AWS_ACCESS_KEY_ID": user.key, "AWS_SECRET_ACCESS_KEY": user.secret}
        if user.token:
            names["AWS_SESSION_TOKEN"] = user.token
        return {**names, "AWS_ENDPOINT_URL": self.endpoint, "AWS_REGION": self.region}

    def mc(self, *arguments: str) -> str:
        """Run MinIO's command line; ``local`` is the name of this server."""
        done = subprocess.run(
            [self.program, *arguments], env=self.variables, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def policy(self, name: str, folder: str) -> Policy:
        """A shipped policy, with its place holders filled in."""
        text = (POLICIES / f"{name}.json").read_text().replace("BUCKET", self.bucket).replace("FOLDER", folder)
        return dict(json.loads(text))

    def create_user(self, name: str, folder: str, *policies: str) -> Credentials:
        """A new user with these of the shipped policies."""
        user = Credentials(f"{folder}-{name}", f"secret-of-{name}")
        self.mc("admin", "user", "add", "local", user.key, user.secret)
        for policy in policies:
            with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
                json.dump(self.policy(policy, folder), file)
                file.flush()
                self.mc("admin", "policy", "create", "local", f"{folder}-{policy}", file.name)
        names = [f"{folder}-{policy}" for policy in policies]
        self.mc("admin", "policy", "attach", "local", *names, "--user", user.key)
        return user

    def assume_role(self, policy: Policy | None = None, user: Credentials | None = None) -> Credentials:
        """Temporary credentials of a user, by default the administrator, restricted by a policy."""
        import botocore.session

        caller = user or self.root
        client = botocore.session.get_session().create_client(
            "sts",
            endpoint_url=self.endpoint,
            aws_access_key_id=caller.key,
            aws_secret_access_key=caller.secret,
            region_name=self.region,
        )
        restriction = {} if policy is None else {"Policy": json.dumps(policy, separators=(",", ":"))}
        role = "arn:aws:iam::000000000000:role/any"
        answer = client.assume_role(RoleArn=role, RoleSessionName="test", **restriction)["Credentials"]
        return Credentials(answer["AccessKeyId"], answer["SecretAccessKey"], answer["SessionToken"])


@pytest.fixture(scope="session")
def minio_server() -> Iterator[Minio]:
    """The server that the environment names, or else one of this session."""
    if "SPARKLOG_TEST_MINIO_ENDPOINT" in os.environ:
        yield Minio(os.environ)
        return
    server = minio.server()
    try:
        environment = server.__enter__()
    except Skipped as reason:
        pytest.skip(str(reason))
    try:
        yield Minio(environment)
    finally:
        server.__exit__(None, None, None)
