"""Behaviour specific to S3: lost answers, refused credentials, missing buckets and unreachable servers."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import pytest

from sparklog.errors import (
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    StoragePermissionError,
    StorageUnavailableError,
)
from sparklog.ids import RandomIds
from sparklog.store.conditional_write_probe import probe_conditional_writes, require_conditional_writes
from sparklog.store.s3 import S3Store
from tests.stores.proxy import proxy_to

pytestmark = pytest.mark.s3


def options_of(environment: Mapping[str, str], **changed: Any) -> dict[str, Any]:
    return {
        "endpoint_url": environment["SPARKLOG_TEST_S3_ENDPOINT"],
        "key": environment["SPARKLOG_TEST_S3_KEY"],
        "secret": environment["SPARKLOG_TEST_S3_SECRET"],
        **changed,
    }


def root_of(environment: Mapping[str, str], folder: str) -> str:
    return f"s3://{environment['SPARKLOG_TEST_S3_BUCKET']}/{folder}"


def test_lost_answer_of_a_create_is_never_reported_as_a_certain_failure(s3_environment: Mapping[str, str]) -> None:
    address = urlsplit(s3_environment["SPARKLOG_TEST_S3_ENDPOINT"])
    with proxy_to(str(address.hostname), int(address.port or 80)) as proxy:
        endpoint = f"http://127.0.0.1:{proxy.port}"
        store = S3Store(root_of(s3_environment, "lost-answer"), options_of(s3_environment, endpoint_url=endpoint))
        for lost in (1, 2):
            key = f"meta/commits/{lost}.json"
            proxy.lose(lost, b"PUT /")
            # The client retries by itself and finds its own object.
            with pytest.raises((ObjectExistsError, StorageUnavailableError)):
                store.put_if_absent(key, b"mine %d" % lost)
            assert proxy.lost == sum(range(lost + 1))
            assert store.get(key) == b"mine %d" % lost


def test_put_with_a_lost_answer_is_retried_by_the_client(s3_environment: Mapping[str, str]) -> None:
    address = urlsplit(s3_environment["SPARKLOG_TEST_S3_ENDPOINT"])
    with proxy_to(str(address.hostname), int(address.port or 80)) as proxy:
        endpoint = f"http://127.0.0.1:{proxy.port}"
        store = S3Store(root_of(s3_environment, "lost-put"), options_of(s3_environment, endpoint_url=endpoint))
        proxy.lose(1, b"PUT /")
        store.put("a", b"1")
        assert proxy.lost == 1
        assert store.get("a") == b"1"


def test_wrong_secret_is_a_permission_error(s3_environment: Mapping[str, str]) -> None:
    store = S3Store(root_of(s3_environment, "x"), options_of(s3_environment, secret="wrong"))
    for call in (lambda: store.get("a"), lambda: store.put_if_absent("a", b"1"), lambda: list(store.list())):
        with pytest.raises(StoragePermissionError) as caught:
            call()
        assert "wrong" not in str(caught.value)


def test_missing_bucket_is_named_and_not_reported_as_a_missing_object(s3_environment: Mapping[str, str]) -> None:
    store = S3Store("s3://no-such-bucket/x", options_of(s3_environment))
    for call in (
        lambda: store.get("a"),
        lambda: store.info("a"),
        lambda: store.delete("a"),
        lambda: list(store.list()),
        lambda: store.put("a", b"1"),
        lambda: store.put_if_absent("a", b"1"),
    ):
        with pytest.raises(StorageError, match="bucket") as caught:
            call()
        assert not isinstance(caught.value, (StorageUnavailableError, ObjectNotFoundError))
        assert not caught.value.nothing_written


def test_server_passes_the_probe_of_conditional_writes(s3_environment: Mapping[str, str]) -> None:
    store = S3Store(root_of(s3_environment, "probed"), options_of(s3_environment))
    probe_conditional_writes(store, RandomIds())
    assert list(store.list()) == []
    require_conditional_writes(store, RandomIds())
    (remembered,) = store.list()
    assert store.endpoint_to_probe.encode() in store.get(remembered.key)


def test_unreachable_server_is_reported_as_unavailable(s3_environment: Mapping[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    options = options_of(s3_environment, endpoint_url=f"http://127.0.0.1:{port}")
    options["config_kwargs"] = {"retries": {"max_attempts": 1}}
    store = S3Store("s3://bucket/x", options)
    for call in (lambda: store.get("a"), lambda: store.put_if_absent("a", b"1")):
        with pytest.raises(StorageUnavailableError):
            call()


def test_abandoned_upload_of_another_root_is_not_removed(s3_environment: Mapping[str, str]) -> None:
    mine = S3Store(root_of(s3_environment, "mine"), options_of(s3_environment))
    other = S3Store(root_of(s3_environment, "mine-too"), options_of(s3_environment))
    file = other.open_output("a")
    file.write(bytes(20 * 1024 * 1024))
    assert mine.remove_unfinished(1 << 60) == 0
    file.close()
    assert other.info("a").size == 20 * 1024 * 1024
