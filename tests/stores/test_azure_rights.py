"""A token of Azure with the rights that docs/storage-setup.md lists for a role is enough for it, and one with less is
refused with words. The emulator checks the rights of tokens; roles of the account's directory it does not have."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from sparklog.client.consumer.consumer import Consumer
from sparklog.client.producer.producer import Producer
from sparklog.coordinator import create_cluster
from sparklog.errors import SparklogError
from tests.cluster.client.consumers import read, values

pytestmark = [pytest.mark.azure, pytest.mark.parametrize("kind", ["azure"])]

READER, WRITER = "rl", "rlawdc"
"""Read and list; these, add, write, create and delete, in the letters of a token."""


def options_of(environment: Mapping[str, str], rights: str) -> dict[str, Any]:
    """The storage options of somebody who has a token with these rights on the container, and no key."""
    from azure.storage.blob import BlobServiceClient, generate_container_sas

    container, expiry = environment["SPARKLOG_TEST_AZURE_CONTAINER"], datetime.now(timezone.utc) + timedelta(hours=1)
    with BlobServiceClient.from_connection_string(environment["SPARKLOG_TEST_AZURE_CONNECTION"]) as client:
        account, key = str(client.account_name), client.credential.account_key
        token = generate_container_sas(account, container, account_key=key, permission=rights, expiry=expiry)
        return {"connection_string": f"BlobEndpoint={client.url};SharedAccessSignature={token}"}


def test_a_reader_reads_and_writes_nothing(
    address: tuple[str, dict[str, Any]], azure_environment: Mapping[str, str]
) -> None:
    url, owner = address
    create_cluster(url, owner).create_topic("t")
    with Producer(bootstrap_servers=url, storage_options=owner) as producer:
        producer.send("t", b"kept")
    reader = options_of(azure_environment, READER)
    with Consumer("t", bootstrap_servers=url, storage_options=reader, auto_offset_reset="earliest") as consumer:
        assert values(read(consumer, 1)) == [b"kept"]
    with Producer(bootstrap_servers=url, storage_options=reader) as refused:
        future = refused.send("t", b"refused")
        with pytest.raises(SparklogError, match="not authorized to perform this operation"):
            future.get(60)


def test_a_writer_works_with_the_listed_rights(
    address: tuple[str, dict[str, Any]], azure_environment: Mapping[str, str]
) -> None:
    url, _ = address
    writer = options_of(azure_environment, WRITER)
    create_cluster(url, writer).create_topic("t")
    with Producer(bootstrap_servers=url, storage_options=writer) as producer:
        producer.send("t", b"one")
        producer.flush()
        producer.send("t", b"two")
    with Consumer("t", bootstrap_servers=url, storage_options=writer, auto_offset_reset="earliest") as consumer:
        assert values(read(consumer, 2)) == [b"one", b"two"]
