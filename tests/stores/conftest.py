"""One suite for every store. Local and memory always run; S3 and HDFS are real servers, GCS and Azure emulators (make
test-s3, test-hdfs, test-gcs, test-azure).

A server named in the environment (SPARKLOG_TEST_S3_ENDPOINT and its companions, SPARKLOG_TEST_HDFS_URL,
SPARKLOG_TEST_GCS_ENDPOINT, SPARKLOG_TEST_AZURE_CONNECTION) is used; else the session starts one. Each
test has a root of its own.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from typing import Any

import pytest

from scripts.servers import azure, gcs, hdfs, s3
from scripts.servers.common import Skipped
from sparklog.store.base import Store
from sparklog.store.open import open_store
from sparklog.testing.faulty_store import FaultyStore

LOCAL = pytest.param("local", id="local")
MEMORY = pytest.param("memory", id="memory")
FAULTY = pytest.param("faulty", id="faulty")
S3 = pytest.param("s3", id="s3", marks=pytest.mark.s3)
HDFS = pytest.param("hdfs", id="hdfs", marks=pytest.mark.hdfs)
GCS = pytest.param("gcs", id="gcs", marks=pytest.mark.gcs)
AZURE = pytest.param("azure", id="azure", marks=pytest.mark.azure)


def _environment(name: str, server: AbstractContextManager[Mapping[str, str]]) -> Iterator[Mapping[str, str]]:
    """The environment variables of the server: the process's own if they name one, else those of a server of this
    session."""
    if name in os.environ:
        yield os.environ
        return
    try:
        environment = server.__enter__()
    except Skipped as reason:
        pytest.skip(str(reason))
    try:
        yield environment
    finally:
        server.__exit__(None, None, None)


@pytest.fixture(scope="session")
def s3_environment() -> Iterator[Mapping[str, str]]:
    yield from _environment("SPARKLOG_TEST_S3_ENDPOINT", s3.server())


@pytest.fixture(scope="session")
def hdfs_environment() -> Iterator[Mapping[str, str]]:
    yield from _environment("SPARKLOG_TEST_HDFS_URL", hdfs.server())


@pytest.fixture(scope="session")
def gcs_environment() -> Iterator[Mapping[str, str]]:
    # Before the import: the emulator has no hierarchical buckets, and the client would wait for it to tell.
    os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"
    pytest.importorskip("gcsfs")
    yield from _environment("SPARKLOG_TEST_GCS_ENDPOINT", gcs.server())


@pytest.fixture(scope="session")
def azure_environment() -> Iterator[Mapping[str, str]]:
    pytest.importorskip("adlfs")
    for environment in _environment("SPARKLOG_TEST_AZURE_CONNECTION", azure.server()):
        create_container(environment)
        yield environment


def create_container(environment: Mapping[str, str]) -> None:
    from azure.core.exceptions import ResourceExistsError
    from azure.storage.blob import BlobServiceClient

    connection = environment["SPARKLOG_TEST_AZURE_CONNECTION"]
    with BlobServiceClient.from_connection_string(connection) as client, suppress(ResourceExistsError):
        client.create_container(environment["SPARKLOG_TEST_AZURE_CONTAINER"])


@pytest.fixture
def address(request: pytest.FixtureRequest, kind: str) -> tuple[str, dict[str, Any]]:
    """URL and storage options of a root that no other test uses."""
    name = hashlib.sha256(f"{request.node.nodeid} {os.getpid()}".encode()).hexdigest()[:16]
    if kind == "local":
        return str(request.getfixturevalue("tmp_path") / "a" / "root"), {}
    if kind in ("memory", "faulty"):
        return f"memory://{name}/root", {}
    if kind == "s3":
        environment = request.getfixturevalue("s3_environment")
        options = {
            "endpoint_url": environment["SPARKLOG_TEST_S3_ENDPOINT"],
            "key": environment["SPARKLOG_TEST_S3_KEY"],
            "secret": environment["SPARKLOG_TEST_S3_SECRET"],
        }
        return f"s3://{environment['SPARKLOG_TEST_S3_BUCKET']}/{name}/root", options
    if kind == "gcs":
        environment = request.getfixturevalue("gcs_environment")
        options = {"endpoint_url": environment["SPARKLOG_TEST_GCS_ENDPOINT"], "token": "anon"}
        return f"gs://{environment['SPARKLOG_TEST_GCS_BUCKET']}/{name}/root", options
    if kind == "azure":
        environment = request.getfixturevalue("azure_environment")
        options = {"connection_string": environment["SPARKLOG_TEST_AZURE_CONNECTION"]}
        return f"abfs://{environment['SPARKLOG_TEST_AZURE_CONTAINER']}/{name}/root", options
    environment = request.getfixturevalue("hdfs_environment")
    if "HADOOP_USER_NAME" in environment:
        os.environ["HADOOP_USER_NAME"] = environment["HADOOP_USER_NAME"]
    return f"{environment['SPARKLOG_TEST_HDFS_URL']}/{name}/root", {}


@pytest.fixture
def store(address: tuple[str, dict[str, Any]], kind: str) -> Store:
    url, options = address
    opened = open_store(url, options)
    return FaultyStore(opened) if kind == "faulty" else opened


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs every test that takes a store on every store, or on those that processes can share if its module says so."""
    if "kind" in metafunc.fixturenames and not any(
        "kind" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")
    ):
        shared = [LOCAL, S3, HDFS, GCS, AZURE]
        only = getattr(metafunc.module, "KINDS", None)
        everywhere = [LOCAL, MEMORY, FAULTY, S3, HDFS, GCS, AZURE]
        metafunc.parametrize("kind", shared if only == "shared" else everywhere)
