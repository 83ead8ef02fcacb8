from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from fsspec.registry import _registry

from sparklog.errors import UnsupportedStoreError
from sparklog.store import open_store as opened_by_name
from sparklog.store.hdfs import HdfsStore
from sparklog.store.local import LocalStore
from sparklog.store.memory import MemoryStore
from sparklog.store.open import open_store
from sparklog.store.remote import FsspecStore
from sparklog.store.s3 import S3Store


@pytest.mark.parametrize(
    ("address", "root"),
    [
        ("/srv/log", "/srv/log"),
        ("/srv/log/", "/srv/log"),
        ("/srv//a/../log", "/srv/log"),
        ("file:///srv/log", "/srv/log"),
        ("file:/srv/log", "/srv/log"),
        ("file://localhost/srv/log", "/srv/log"),
        ("file:///srv/with%20space", "/srv/with space"),
        ("/srv/with%20percent", "/srv/with%20percent"),
        ("file:///srv/a#b?c", "/srv/a#b?c"),
        ("/srv/odd:name", "/srv/odd:name"),
    ],
)
def test_local_addresses(address: str, root: str) -> None:
    store = open_store(address)
    assert isinstance(store, LocalStore)
    assert store.root == root
    assert open_store(store.root).root == root


def test_relative_paths_and_home_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/srv/home")
    assert open_store("log/a").root == f"{tmp_path}/log/a"
    assert open_store(".").root == str(tmp_path)
    assert open_store("~/log").root == "/srv/home/log"
    assert open_store(tmp_path / "log").root == f"{tmp_path}/log"


@pytest.mark.parametrize(
    ("address", "kind", "root"),
    [
        ("memory://name", MemoryStore, "memory://name"),
        ("memory://name/a/b/", MemoryStore, "memory://name/a/b"),
        ("s3://bucket", S3Store, "s3://bucket"),
        ("s3a://bucket/folder/", S3Store, "s3://bucket/folder"),
        ("S3://bucket/folder", S3Store, "s3://bucket/folder"),
        ("gs://bucket/folder", FsspecStore, "gs://bucket/folder"),
        ("abfss://box@account.dfs.core.windows.net/a", FsspecStore, "abfs://box@account.dfs.core.windows.net/a"),
        ("hdfs://namenode:8020/a/b/", HdfsStore, "hdfs://namenode:8020/a/b"),
        ("hdfs:///a", HdfsStore, "hdfs:///a"),
        ("viewfs://cluster/a", HdfsStore, "viewfs://cluster/a"),
    ],
)
def test_addresses_by_protocol_without_contacting_the_storage(address: str, kind: type, root: str) -> None:
    store = open_store(address)
    assert type(store) is kind
    assert store.root == root


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("http://server/log", "read-only"),
        ("https://server/log", "read-only"),
        ("ftp://server/log", "no write that fails if the name is taken"),
        ("sftp://server/log", "not verified"),
        ("webhdfs://server/log", "lost rename"),
        ("dbfs:///log", "no verified conditional create"),
        ("wasbs://box@account/log", "abfss"),
        ("strange://server/log", "no put-if-absent"),
        ("simplecache::s3://bucket/log", "chain"),
        ("", "invalid storage address"),
        ("  ", "invalid storage address"),
        ("a\0b", "invalid storage address"),
        ("file://other-host/srv/log", "three slashes"),
        ("file:relative", "three slashes"),
        ("memory://", "memory://name"),
        ("memory://a/../b", "memory://name"),
        ("s3://", "does not name a bucket"),
        ("s3:/bucket/log", "write s3://bucket/log"),
        ("hdfs:/log", "write hdfs:///log for the default file system, or hdfs://namenode/log"),
        ("dbfs:/log", "one slash"),
    ],
)
def test_errors_for_refused_addresses_give_reason_and_remedy(address: str, reason: str) -> None:
    with pytest.raises(UnsupportedStoreError, match=reason) as caught:
        open_store(address)
    assert "s3://" in str(caught.value) or "write" in str(caught.value) or "abfs" in str(caught.value)


@pytest.mark.parametrize(
    "address", ["s3://AKIA:password@bucket/log", "hdfs://me:password@host/log", "ftp://u:password@h"]
)
def test_credentials_in_an_address_are_refused_and_not_repeated(address: str) -> None:
    with pytest.raises(UnsupportedStoreError) as caught:
        open_store(address)
    assert "password" not in str(caught.value)
    assert "password" not in str(caught.value.path)


def test_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for address, module, extra in (
        ("gs://bucket/a", "gcsfs", "gcs"),
        ("abfs://box/a", "adlfs", "azure"),
        ("hdfs://host/a", "hdfs_native", "hdfs"),
        ("s3://bucket/a", "s3fs", "s3"),
    ):
        monkeypatch.setitem(sys.modules, module, None)
        monkeypatch.delitem(_registry, address.partition(":")[0], raising=False)  # used by another test
        with pytest.raises(UnsupportedStoreError, match=rf"pip install 'sparklog\[{extra}\]'"):
            open_store(address).get("x")


def test_local_store_loads_no_remote_client() -> None:
    program = "import sys; from sparklog.store.open import open_store; open_store('/srv'); print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": "."},
    ).stdout.split()
    assert not {"fsspec", "s3fs", "aiobotocore", "hdfs_native", "asyncio"} & set(loaded)


def test_jars_on_the_path_of_imports_are_not_read(tmp_path: Path) -> None:
    """Spark puts those of ``spark.jars.packages`` there; Amazon's has 400,000 names, all of which fsspec would read."""
    jar = tmp_path / "bundle.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("in_jar-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: in-jar\nVersion: 1\n")
        archive.writestr("in_jar-1.dist-info/entry_points.txt", "[fsspec.specs]\nin-jar = in_jar:FileSystem\n")
    program = (
        "import pathlib, sys; from sparklog.store.open import open_store; path = sys.path\n"
        "path.append(pathlib.Path('/srv'))\n"
        "store = open_store('s3://bucket/log', {'anon': True}); store.client.get(); import fsspec\n"
        "assert sys.path is path, sys.path\n"
        "print('in-jar' in fsspec.available_protocols(), *sys.path)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(jar), "."]), "AWS_REGION": "us-east-1"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
    ).stdout.split()
    assert done[0] == "False"
    assert str(jar) in done


def test_package_exports_open_store() -> None:
    assert opened_by_name is open_store


@pytest.mark.parametrize(
    "text",
    [
        *("FILE:{root}/log", "FILE://{root}/log", "File:///{root}/log", "file://localhost{root}/log"),
        *("file:{root}/log", "{root}/log ", " {root}/log\n", "\t{root}/log/", "file://{root}/log\r\n"),
    ],
)
def test_an_address_that_is_spelt_otherwise_is_the_same_store(tmp_path: Path, text: str) -> None:
    assert open_store(text.format(root=tmp_path)).root == str(tmp_path / "log")


@pytest.mark.parametrize("text", ["S3://bucket/log", "MEMORY://name", "Memory://name", " s3://bucket/log "])
def test_the_case_of_a_scheme_does_not_count(text: str) -> None:
    pytest.importorskip("s3fs")
    assert open_store(text).root == open_store(text.strip().lower()).root


@pytest.mark.parametrize(
    "text",
    [
        *("file:log", "FILE:log", "file:~/log", "file://host/log", "file:", "FILE:", "S3:bucket/log", "hdfs:/log"),
        *("HDFS:/log", "localhost:9092", "a:9092,b:9092", "broker.example:9092/log", "[::1]:9092", "kafka:log"),
        *("C:\\log", "c:/log", "C:", "\\\\server\\share", "data\\log", "ftp:/log", "jdbc:postgresql:x", "foo://x"),
        *("~nobody-of-this-name/log", "$ROOT/log", "${ROOT}", "%USERPROFILE%/log", "'/data/log'", '"/data/log"'),
        *("s3//bucket/log", "<root>/log", "dbfs:/log", "dbfs:log", "http:/x", "s3 ://b"),
    ],
)
def test_what_was_not_meant_as_a_folder_makes_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnsupportedStoreError):
        open_store(text).put_if_absent("key", b"")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_such_a_name_is_opened_if_it_exists_or_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a:1", "data\\log", "$x", "log "):
        (tmp_path / name).mkdir()
        assert open_store(name).root == str(tmp_path / name)
    assert open_store("./new:1").root == str(tmp_path / "new:1")
    assert open_store("logs/new:1").root == str(tmp_path / "logs/new:1")


@pytest.mark.parametrize(
    ("text", "hint", "wrong"),
    [
        ("dbfs:/x", "give the address of the storage below it", "write dbfs://"),
        ("s3a:\\\\b\\x", "write s3a://b/x", "s3a://\\"),
        ("hdfs:/x", "write hdfs:///x for the default file system, or hdfs://namenode/x", "hdfs://x"),
    ],
)
def test_the_hint_about_a_slash_is_an_address_that_is_taken(text: str, hint: str, wrong: str) -> None:
    with pytest.raises(UnsupportedStoreError) as refused:
        open_store(text)
    assert hint in refused.value.message
    assert wrong not in refused.value.message


@pytest.mark.parametrize("path", ["/Volumes/main/default/logs/log", "file:///dbfs/log", "/Workspace/Shared/log"])
def test_a_mount_of_databricks_is_refused_there_and_a_folder_of_that_name_elsewhere(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert open_store(path).root == path.removeprefix("file://")
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    with pytest.raises(UnsupportedStoreError, match=r"free: give the address of the storage below it.*DESCRIBE"):
        open_store(path)


def test_localhost_is_this_machine_in_any_case(tmp_path: Path) -> None:
    assert open_store(f"file://LOCALHOST{tmp_path}").root == str(tmp_path)
