"""The arguments of the clients: types, ``config``, defaults from the environment, and contradictions."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from sparklog.client.admin.client import DEFAULTS as ADMIN_DEFAULTS
from sparklog.client.admin.client import NO_EFFECT, AdminClient
from sparklog.client.arguments import Acks, AdminArguments, ConsumerArguments, ProducerArguments
from sparklog.client.config import SOCKET_ARGUMENTS, answer_brokers_with, root_of
from sparklog.client.consumer.assignors import RangePartitionAssignor, RoundRobinPartitionAssignor
from sparklog.client.consumer.config import DEFAULTS as CONSUMER_DEFAULTS
from sparklog.client.consumer.consumer import Consumer
from sparklog.client.producer.config import DEFAULTS as PRODUCER_DEFAULTS
from sparklog.client.producer.producer import Producer
from sparklog.config.environment import ROOT_VARIABLE
from sparklog.coordinator import create_cluster
from sparklog.errors import InvalidConfigurationError

CLIENTS: list[Any] = [Producer, Consumer, AdminClient]


@pytest.fixture
def root(tmp_path: Path) -> str:
    create_cluster(str(tmp_path))
    return str(tmp_path)


# -- types


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (ProducerArguments, {*PRODUCER_DEFAULTS, *SOCKET_ARGUMENTS}),
        (ConsumerArguments, {*CONSUMER_DEFAULTS, *SOCKET_ARGUMENTS}),
        (AdminArguments, {*ADMIN_DEFAULTS, *NO_EFFECT}),
    ],
)
def test_the_types_list_every_argument(arguments: type, names: set[str]) -> None:
    assert set(get_type_hints(arguments)) == names | {"bootstrap_timeout_ms"}


WRONG = {
    "Producer(bootstrap_servers='/data/log', linger=5)": 'Unexpected keyword argument "linger" for "Producer"',
    "Producer(bootstrap_servers='/data/log', linger_ms='5')": '"linger_ms"',
    "Producer(acks=2)": '"acks"',
    "Producer(acks='1')": '"acks"',
    "Producer(batch_size=1.5)": '"batch_size"',
    "Consumer(session_timeout_ms=6000.5)": '"session_timeout_ms"',
    "Producer(compression_type='zst')": '"compression_type"',
    "Producer(value_serializer=5)": '"value_serializer"',
    "Consumer('orders', group='billing')": 'Unexpected keyword argument "group" for "Consumer"',
    "Consumer('orders', enable_auto_commit='yes')": '"enable_auto_commit"',
    "Consumer('orders', isolation_level='committed')": '"isolation_level"',
    "AdminClient(bootstrap_server='/data/log')": 'Unexpected keyword argument "bootstrap_server" for "AdminClient"',
    "AdminClient(client_id=5)": '"client_id"',
    "kafka.KafkaProducer(ack='all')": 'Unexpected keyword argument "ack" for "Producer"',
    "kafka.nothing": 'Module has no attribute "nothing"',
}
RIGHT = """
Producer()
Producer(bootstrap_servers=["/data/log"], acks="all", retries=math.inf, value_serializer=lambda v: v.encode())
Producer(bootstrap_servers=Path("/data/log"), key_serializer=str.encode, partitioner=lambda key, every, led: every[0])
Producer(value_serializer=kafka.JsonSerializer(), partitioner=Mine(), compression_type="zstd", ssl_cafile="ca.pem")
Consumer("orders", "returns", group_id="billing", key_deserializer=bytes.decode, value_deserializer=json.loads)
Consumer(partition_assignment_strategy=[RangePartitionAssignor], auto_offset_reset="earliest")
AdminClient(bootstrap_servers="s3://bucket/log", storage_options={"anon": False})
Producer(acks=-1, linger_ms=5.5, max_block_ms=math.inf)
Consumer(group_id=b"billing", max_poll_interval_ms=math.inf, session_timeout_ms=6000)
arguments: ProducerArguments = {"acks": 1, "linger_ms": 5}
Producer(**arguments)
given: dict[str, Any] = {}
Consumer("orders", **given)
"""
HEAD = """
import json
import math
from pathlib import Path
from typing import Any

import sparklog.kafka as kafka
from sparklog import AdminClient, Consumer, Producer
from sparklog.client.arguments import ProducerArguments
from sparklog.kafka.coordinator.assignors.range import RangePartitionAssignor
from sparklog.kafka.errors import KafkaTimeoutError
from sparklog.kafka.partitioner import Partitioner


class Mine(Partitioner):
    def partition(
        self, topic: str, key: Any, serialized_key: bytes | None, value: Any, serialized_value: bytes | None, on: Any
    ) -> int:
        raise KafkaTimeoutError("late")

"""


def test_mypy_finds_each_misspelt_and_mistyped_argument_and_nothing_else(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="mypy is not installed here")
    program = tmp_path / "program.py"
    program.write_text(HEAD + RIGHT + "\n".join(WRONG) + "\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--python-version=3.10", "--no-error-summary", "--no-pretty"]
    command += [f"--cache-dir={tmp_path / 'cache'}", "--follow-imports=silent", str(program)]
    completed = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3])
    first = program.read_text().splitlines().index(next(iter(WRONG))) + 1
    errors = {
        int(line.split(":")[1]): line
        for line in completed.stdout.splitlines()
        if line.startswith(str(program)) and ": error:" in line
    }
    assert completed.stderr == ""
    assert sorted(errors) == list(range(first, first + len(WRONG))), completed.stdout
    for number, (statement, message) in enumerate(WRONG.items(), first):
        assert message in errors[number], f"{statement}: {errors[number]}"


TYPES: dict[Any, Any] = {Producer: ProducerArguments, Consumer: ConsumerArguments, AdminClient: AdminArguments}
UNCHECKED = {*SOCKET_ARGUMENTS, *NO_EFFECT, "fetch_min_bytes", "retries"}


def names_of(kind: type) -> list[Any]:
    """The arguments of type ``kind`` that have an effect, with their client."""
    return [
        pytest.param(client, name, id=f"{client.__name__}({name})")
        for client, arguments in TYPES.items()
        for name, hint in get_type_hints(arguments).items()
        if (hint is kind or kind in get_args(hint)) and name not in UNCHECKED
    ]


@pytest.mark.parametrize(("client", "name"), names_of(float))
def test_float_arguments_accept_fractions(client: Any, name: str, root: str) -> None:
    with client(bootstrap_servers=root, **{name: 1500.5}) as instance:
        assert instance.config[name] == 1500.5


@pytest.mark.parametrize(("client", "name"), names_of(int))
def test_int_arguments_accept_only_whole_numbers(client: Any, name: str, root: str) -> None:
    codec = {"compression_type": name.split("_")[1]} if name.startswith("compression_") else {}
    with pytest.raises(InvalidConfigurationError, match=name.replace("_", ".")):
        client(bootstrap_servers=root, **codec, **{name: 1.5})


def test_acks_accepts_only_the_values_of_its_type(root: str) -> None:
    for acks in get_args(Acks):
        Producer(bootstrap_servers=root, acks=acks).close()
    for wrong in (2, -2, "1", "-1", "none", True, 1.0, None):
        with pytest.raises(InvalidConfigurationError, match="acks"):
            Producer(bootstrap_servers=root, acks=wrong)  # type: ignore[arg-type]


# -- config


@pytest.mark.parametrize("client", CLIENTS)
def test_config_has_every_argument_as_given_or_by_default(client: Any, root: str) -> None:
    with client(bootstrap_servers=[root], ssl_cafile="ca.pem") as instance:
        assert set(instance.config) == set(client.DEFAULT_CONFIG)
        assert instance.config["bootstrap_servers"] == [root]
        assert instance.config["ssl_cafile"] == "ca.pem"
        assert instance.config["security_protocol"] == "PLAINTEXT"
        assert instance.config["api_version"] >= (0, 11)
        assert client.DEFAULT_CONFIG["ssl_cafile"] is None


def test_config_has_the_converted_arguments(root: str) -> None:
    with Producer(bootstrap_servers=Path(root), acks="all") as producer:
        assert producer.config["acks"] == -1
        assert producer.config["bootstrap_servers"] == root
        assert producer.config["retries"] == math.inf
    with Consumer("orders", bootstrap_servers=root, group_id="billing") as consumer:
        assert consumer.config["group_id"] == "billing"
        assert consumer.config["session_timeout_ms"] == 45_000
    strategy = Consumer.DEFAULT_CONFIG["partition_assignment_strategy"]
    assert strategy == (RangePartitionAssignor, RoundRobinPartitionAssignor)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_accepts_the_whole_default_config(client: Any, root: str) -> None:
    with client(**{**client.DEFAULT_CONFIG, "bootstrap_servers": root}) as instance:
        assert instance.config["bootstrap_servers"] == root


# -- which cluster


@pytest.mark.parametrize("client", CLIENTS)
def test_without_an_address_the_environment_names_the_cluster(
    client: Any, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ROOT_VARIABLE, root)
    with client() as instance:
        assert instance.config["bootstrap_servers"] == root
    monkeypatch.delenv(ROOT_VARIABLE)
    with pytest.raises(InvalidConfigurationError, match=ROOT_VARIABLE):
        client()


def test_an_address_overrides_the_environment(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ROOT_VARIABLE, "/nowhere")
    with Producer(bootstrap_servers=root) as producer:
        assert producer.config["bootstrap_servers"] == root


BROKERS = [
    "localhost",
    "localhost:9092",
    "kafka-1.example:9092,kafka-2.example:9092",
    ["a:9092", "b:9092"],
    ("SASL_SSL://broker:9093",),
    "[::1]:9092",
]


@pytest.mark.parametrize("servers", BROKERS)
def test_broker_addresses_are_refused_unless_mapped_to_a_root(servers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparklog.client.config.root_for_brokers", [])
    monkeypatch.setenv(ROOT_VARIABLE, "/environment")
    with pytest.raises(InvalidConfigurationError, match="there is no server with a port"):
        root_of("Producer", servers)
    answer_brokers_with(None)
    assert root_of("Producer", servers) == "/environment"
    answer_brokers_with("/data/log")
    assert root_of("Producer", servers) == "/data/log"
    answer_brokers_with(None)
    monkeypatch.delenv(ROOT_VARIABLE)
    with pytest.raises(InvalidConfigurationError, match="there is no server with a port"):
        root_of("Producer", servers)


@pytest.mark.parametrize("servers", ["/data/log", "s3://bucket/log", "data:9092/log", "C:\\log"])
def test_an_address_that_is_not_a_brokers_is_used_unchanged(servers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparklog.client.config.root_for_brokers", ["/other"])
    assert root_of("Producer", servers) == servers


# -- contradictions


@pytest.mark.parametrize(
    "arguments",
    [
        {"enable_idempotence": True, "acks": 1},
        {"enable_idempotence": True, "acks": 0},
        {"enable_idempotence": True, "retries": 0},
        {"enable_idempotence": True, "max_in_flight_requests_per_connection": 6},
        {"transactional_id": "t", "acks": 1},
        {"transactional_id": "t", "retries": 0},
        {"transactional_id": "t", "max_in_flight_requests_per_connection": 6},
        {"transactional_id": "t", "enable_idempotence": False},
        {"delivery_timeout_ms": 10_000, "request_timeout_ms": 9_000, "linger_ms": 1_001},
    ],
)
def test_contradictory_producer_arguments_are_refused(arguments: dict[str, Any], root: str) -> None:
    with pytest.raises(InvalidConfigurationError) as refused:
        Producer(bootstrap_servers=root, **arguments)
    assert any(name in str(refused.value) for name in arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        {"acks": 1},
        {"retries": 0},
        {"max_in_flight_requests_per_connection": 6},
        {"enable_idempotence": False, "acks": 0, "retries": 0},
        {"enable_idempotence": True, "acks": "all", "retries": 1, "max_in_flight_requests_per_connection": 5},
        {"delivery_timeout_ms": 10_000, "request_timeout_ms": 9_000, "linger_ms": 1_000},
        {"delivery_timeout_ms": 10_000},
    ],
)
def test_default_idempotence_contradicts_no_argument(arguments: dict[str, Any], root: str) -> None:
    with Producer(bootstrap_servers=root, **arguments) as producer:
        assert producer.config["enable_idempotence"] is arguments.get("enable_idempotence", True)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"fetch_max_wait_ms": 30_000}, "fetch_max_wait_ms"),
        ({"fetch_max_wait_ms": 2_000, "request_timeout_ms": 1_000}, "fetch_max_wait_ms"),
        ({"request_timeout_ms": 500}, "request_timeout_ms"),
        ({"connections_max_idle_ms": 30_000}, "connections_max_idle_ms"),
        ({"group_instance_id": "i"}, "group_instance_id"),
    ],
)
def test_contradictory_consumer_arguments_are_refused(arguments: dict[str, Any], named: str, root: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=named):
        Consumer(bootstrap_servers=root, **arguments)


def test_consistent_timeouts_are_accepted(root: str) -> None:
    with Consumer(bootstrap_servers=root, fetch_max_wait_ms=600, request_timeout_ms=601, connections_max_idle_ms=602):
        pass
