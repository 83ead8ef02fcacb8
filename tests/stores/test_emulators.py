"""Unknown outcomes on Google Cloud Storage and Azure: a lost answer to a create is never a certain failure, or two."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import pytest

from sparklog.errors import ObjectExistsError, ObjectNotFoundError, StorageError, StorageUnavailableError
from sparklog.store.open import open_store
from tests.stores.proxy import proxy_to

REQUEST = {"gcs": b"POST /upload", "azure": b"PUT /"}
"""How the request of a create begins."""


def through(port: int, kind: str, options: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """The options with this port of this machine as the server, and the server's own port."""
    name = "endpoint_url" if kind == "gcs" else "connection_string"
    text = options[name]
    address = text if kind == "gcs" else text.partition("BlobEndpoint=")[2].rstrip(";")
    own = urlsplit(address).port
    assert own is not None
    return {**options, name: text.replace(f":{own}", f":{port}")}, own


@pytest.mark.parametrize("kind", [pytest.param(name, marks=getattr(pytest.mark, name)) for name in REQUEST])
def test_lost_answer_of_a_create_is_never_a_certain_failure(kind: str, address: tuple[str, dict[str, Any]]) -> None:
    root, options = address
    _, port = through(0, kind, options)
    with proxy_to("127.0.0.1", port) as proxy:
        store = open_store(root, through(proxy.port, kind, options)[0])
        for lost in (1, 2):
            key = f"meta/commits/{lost}.json"
            proxy.lose(lost, REQUEST[kind])
            with pytest.raises((ObjectExistsError, StorageUnavailableError)) as caught:  # the client finds its own
                store.put_if_absent(key, b"mine %d" % lost)
            assert not caught.value.nothing_written
            assert proxy.lost == sum(range(lost + 1))
            assert store.get(key) == b"mine %d" % lost


@pytest.mark.parametrize("kind", [pytest.param(name, marks=getattr(pytest.mark, name)) for name in REQUEST])
def test_missing_bucket_is_a_storage_error(kind: str, address: tuple[str, dict[str, Any]]) -> None:
    root, options = address
    store = open_store(root.replace("sparklog-test", "no-such-bucket"), options)
    for write in (store.put, store.put_if_absent):
        with pytest.raises(StorageError) as caught:
            write("a", b"1")
        assert not isinstance(caught.value, ObjectNotFoundError | ObjectExistsError)
