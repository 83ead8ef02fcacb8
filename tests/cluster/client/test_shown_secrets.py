"""No client, message or representation shows an option of the storage's client: any of them may be a secret."""

from __future__ import annotations

import traceback
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sparklog
from sparklog import AdminClient, Consumer, Producer
from sparklog.cli.arguments.parser import UsageError, storage_options
from sparklog.errors import InvalidOptionError, UnsupportedStoreError
from sparklog.spark.options import sink_options

SECRET = "wJalrXUtnFEMI"


def test_clients_hide_the_options_of_the_storage(tmp_path: Path) -> None:
    root = str(tmp_path / "log")
    sparklog.create_cluster(root)
    options = {"secret": SECRET, "client_kwargs": {"password": SECRET}}
    for kind in (Producer, Consumer, AdminClient):
        with kind(bootstrap_servers=root, storage_options=options) as client:
            assert client.config["storage_options"] == dict.fromkeys(options, "[hidden]")
            assert SECRET not in f"{client!r} {client.config} {vars(client)!s:.100}"
    assert options["secret"] == SECRET
    with Producer(bootstrap_servers=root) as producer:
        assert producer.config["storage_options"] is None


@pytest.mark.parametrize("kind", [Producer, Consumer, AdminClient])
def test_clients_hide_passwords_of_connections(tmp_path: Path, kind: Any) -> None:
    root = str(tmp_path / "log")
    sparklog.create_cluster(root)
    proxy = f"http://user:{SECRET}@proxy:80"
    with kind(bootstrap_servers=root, sasl_plain_password=SECRET, ssl_password=SECRET, proxy_url=proxy) as client:
        assert client.config["sasl_plain_password"] == client.config["ssl_password"] == "[hidden]"
        assert client.config["proxy_url"] == "http://proxy:80"
        assert SECRET not in repr(client.config)
    with kind(bootstrap_servers=root) as client:
        assert client.config["sasl_plain_password"] is None


ADDRESSES = [
    "https://b.s3/x?X-Amz-Signature={}",
    "s3://b/x?secret={}",
    "abfss://c@a.dfs.core.windows.net/x?sv=1&sig={}",
    "gs://b/x?a=1&token={}",
    "file://u:{}@h/x",
    "s3:/k:{}@b",
    "memory://u:{}@x",
    "ftp://u:{}@h/x",
    "dbfs:/u:{}@x",
    "chain::http://u:{}@h",
    "kafka:u:{}@h",
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_with_a_secret_is_refused_without_showing_it(address: str) -> None:
    with pytest.raises(UnsupportedStoreError) as refused:
        Producer(bootstrap_servers=address.format(SECRET), bootstrap_timeout_ms=0)
    shown = "".join(traceback.format_exception(refused.value, chain=True)) + repr(vars(refused.value))
    assert SECRET not in shown


def test_messages_and_representations_hide_them(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        storage_options(Namespace(storage_option=["secret={" + SECRET]), {})
    assert SECRET not in str(refused.value)
    given = {"path": str(tmp_path), "topic": "t"}
    with pytest.raises(InvalidOptionError) as invalid:
        sink_options({**given, "storage.secret": "[" + SECRET})
    assert SECRET not in str(invalid.value)
    assert SECRET not in repr(sink_options({**given, "storage.secret": SECRET}))


def test_an_unknown_argument_is_named_with_the_nearest_one() -> None:
    calls: list[tuple[Callable[..., object], str, str]] = [
        (sparklog.read, "starting_offset", "starting_offsets"),
        (sparklog.scan, "colums", "columns"),
        (sparklog.write, "topics", "topic"),
        (sparklog.table, "as_off", "as_of"),
    ]
    for function, wrong, right in calls:
        with pytest.raises(TypeError, match=f"keyword argument '{wrong}'; did you mean {right}[?]"):
            function(None, "/nowhere", **{wrong: "x"})
