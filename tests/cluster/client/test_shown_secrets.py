"""No client, message or representation shows an option of the storage's client: any of them may be a secret."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import pytest

import sparklog
from sparklog import AdminClient, Consumer, Producer
from sparklog.cli.arguments.parser import UsageError, storage_options
from sparklog.errors import InvalidOptionError
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
