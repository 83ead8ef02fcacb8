"""The arguments of the clients: which are accepted, ignored or refused, and which cluster they name."""

from __future__ import annotations

import logging
import math
from pathlib import Path

import pytest

from sparklog.client.config import check_arguments, cluster_of, one_of, root_of, takes, whole_number
from sparklog.coordinator import create_cluster
from sparklog.errors import ClusterNotFoundError, InvalidConfigurationError, StorageUnavailableError
from sparklog.store.local import LocalStore
from sparklog.testing.faulty_store import UNAVAILABLE, Fault, FaultyStore
from sparklog.testing.substitutes import substituted

KNOWN = {"linger_ms": 0, "batch_size": 16384, "acks": -1}


def test_missing_arguments_have_their_defaults() -> None:
    assert check_arguments("Producer", {"linger_ms": 5}, KNOWN) == {"linger_ms": 5, "batch_size": 16384, "acks": -1}


def test_socket_arguments_are_ignored_with_a_debug_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="sparklog.client.config"):
        config = check_arguments("Producer", {"ssl_cafile": "ca.pem", "security_protocol": "SSL"}, KNOWN)
    assert config == KNOWN
    assert [line.split("(")[1].split("=")[0] for line in caplog.messages] == ["ssl_cafile", "security_protocol"]
    assert "ca.pem" not in caplog.text


@pytest.mark.parametrize(
    ("name", "hint"),
    [("linger.ms", "did you mean linger_ms?"), ("batchsize", "did you mean batch_size?"), ("zzz", "it takes acks, ")],
)
def test_an_unknown_argument_is_refused_with_a_suggestion(name: str, hint: str) -> None:
    with pytest.raises(InvalidConfigurationError) as caught:
        check_arguments("Producer", {name: 1}, KNOWN)
    assert name in str(caught.value)
    assert hint in str(caught.value)


@pytest.mark.parametrize("value", [-1, "5", 1.5, True, None, math.nan])
def test_invalid_whole_numbers_are_refused(value: object) -> None:
    with pytest.raises(InvalidConfigurationError, match="linger_ms"):
        whole_number("Producer", {"linger_ms": value}, "linger_ms")


def test_infinity_and_whole_floats_are_whole_numbers() -> None:
    assert whole_number("Producer", {"retries": math.inf}, "retries") == 2**63 - 1
    assert whole_number("Producer", {"retries": 3.0}, "retries") == 3


def test_choices_are_compared_by_value_and_type() -> None:
    assert one_of("Producer", {"acks": 1}, "acks", (0, 1, -1, "all")) == 1
    for value in (True, "1", 2):
        with pytest.raises(InvalidConfigurationError, match="acks"):
            one_of("Producer", {"acks": value}, "acks", (0, 1, -1, "all"))


@pytest.mark.parametrize("servers", ["/data/log", ["/data/log"], ("/data/log",), {"/data/log"}, Path("/data/log")])
def test_the_root_may_be_an_address_or_a_collection_of_one(servers: object) -> None:
    assert root_of("Producer", servers) == "/data/log"


@pytest.mark.parametrize(
    "servers", [None, "", [], ["a:9092", "b:9092"], 9092, [None], "localhost:9092", ["kafka-1.example:9092"]]
)
def test_addresses_that_do_not_name_exactly_one_root_are_refused(
    servers: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARKLOG_BOOTSTRAP_SERVER", raising=False)
    with pytest.raises(InvalidConfigurationError, match="the one root of the cluster"):
        root_of("Producer", servers)


def test_clients_of_one_process_share_a_coordinator(tmp_path: Path) -> None:
    create_cluster(str(tmp_path))
    config = {"bootstrap_servers": str(tmp_path)}
    assert cluster_of("Producer", config) is cluster_of("Consumer", {**config, "storage_options": {}})


def test_an_open_coordinator_overrides_the_address(tmp_path: Path) -> None:
    coordinator = create_cluster(str(tmp_path))
    assert cluster_of("Producer", {"cluster": coordinator, "bootstrap_servers": "/nowhere"}) is coordinator
    with pytest.raises(InvalidConfigurationError, match="bootstrap_servers"):
        cluster_of("Producer", {"cluster": str(tmp_path)})
    with pytest.raises(InvalidConfigurationError, match="storage_options"):
        cluster_of("Producer", {"bootstrap_servers": str(tmp_path), "storage_options": "key=1"})


def test_the_error_for_a_missing_cluster_says_how_to_create_one(tmp_path: Path) -> None:
    with pytest.raises(ClusterNotFoundError, match="sparklog cluster create"):
        cluster_of("Producer", {"bootstrap_servers": str(tmp_path)})


def test_opening_a_cluster_retries_while_the_storage_is_unavailable(tmp_path: Path) -> None:
    create_cluster(str(tmp_path))
    store = FaultyStore(LocalStore(str(tmp_path)), [Fault(step, UNAVAILABLE) for step in (0, 2, 3)])
    with substituted(store):
        assert cluster_of("Consumer", {"bootstrap_servers": str(tmp_path)}).state.version == 0
    assert len(store.injected) == 3


def test_opening_a_cluster_fails_after_bootstrap_timeout_ms(tmp_path: Path) -> None:
    create_cluster(str(tmp_path))
    store = FaultyStore(LocalStore(str(tmp_path)), seed=1, rates={UNAVAILABLE: 1.0})
    with substituted(store), pytest.raises(StorageUnavailableError):
        cluster_of("Consumer", {"bootstrap_servers": str(tmp_path), "bootstrap_timeout_ms": 150})


def test_a_method_without_a_signature_is_called_with_headers_as_kafka_python_does() -> None:
    assert takes(type, "topic", [], b"")
    assert takes(lambda topic, headers, data: data, "topic", [], b"")
    assert not takes(lambda topic, data: data, "topic", [], b"")
