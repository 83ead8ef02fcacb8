"""A pytest plugin under which kafka-python's own tests run against sparklog.

It makes ``import kafka`` import sparklog.kafka, creates a log in a folder where the tests start a broker, and replaces
the parts of kafka-python's network code that their helpers import. It writes the outcomes to SPARKLOG_OUTCOMES.

Not for: sparklog's own tests. scripts/kafka_python_tests.py starts pytest with it.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import sparklog.kafka
from sparklog.coordinator import create_cluster
from sparklog.protocol.decide.topics import alter_configs

PARTITIONS = 4
"""Partitions per topic, as on the broker of the tests."""
outcomes: dict[str, str] = {}


def stand_in(name: str, **attributes: Any) -> None:
    """Create a module of this name, unless sparklog has one."""
    try:
        __import__(name)
    except ImportError:
        module = ModuleType(name)
        vars(module).update(attributes)
        sys.modules[name] = module
        parent, _, last = name.rpartition(".")
        if parent in sys.modules:
            setattr(sys.modules[parent], last, module)


class Log:
    """The interface of the broker that the tests start."""

    partitions = PARTITIONS
    replicas = 1

    def __init__(self) -> None:
        self.root = str(Path(tempfile.mkdtemp(prefix="kafka-python-tests-")) / "cluster")
        cluster = create_cluster(self.root)
        cluster.submit(
            partial(alter_configs, topic="", changes={"group.min.session.timeout.ms": "1000"})
        )  # the tests' broker allows short ones
        self.zookeeper = None

    @classmethod
    def instance(cls, *arguments: Any, **named: Any) -> Log:
        return cls()

    def bootstrap_server(self) -> str:
        return self.root

    def _enrich_client_params(self, params: dict[str, Any], **defaults: Any) -> dict[str, Any]:
        return {**defaults, "bootstrap_servers": self.root, **params}

    def close(self) -> None:
        pass


def create_topics(broker: Log, names: list[str], num_partitions: int = PARTITIONS, replication_factor: int = 1) -> None:
    with_options = {name: {"num_partitions": num_partitions, "replication_factor": 1} for name in names}
    admin = sparklog.kafka.KafkaAdminClient(bootstrap_servers=broker.root)
    admin.create_topics(with_options)
    admin.close()


def client_params(broker: Log, client_id: str = "client", **overrides: Any) -> dict[str, Any]:
    return broker._enrich_client_params(overrides, client_id=client_id)


# Their folder is not a package in the source distribution, and Python's own package of that name would be imported.
package = ModuleType("test")
package.__path__ = [str(Path.cwd() / "test")]
sys.modules["test"] = package

sparklog.kafka.install(Log().root)  # used whether a test names a broker or not
stand_in("kafka.net")
stand_in("kafka.net.compat", KafkaNetClient=None)
stand_in("kafka.net.manager", KafkaConnectionManager=None)
stand_in("kafka.net.selector", NetworkSelector=None)
stand_in("kafka.protocol.metadata", MetadataResponse=None)
stand_in("kafka.protocol")
stand_in("kafka.protocol.broker_version_data", BrokerVersionData=SimpleNamespace)
stand_in("kafka.structs", MemberState=None)
if not hasattr(sys.modules["kafka.structs"], "MemberState"):
    states = SimpleNamespace(UNJOINED="<unjoined>", REBALANCING="<rebalancing>", STABLE="<stable>")
    sys.modules["kafka.structs"].MemberState = states  # type: ignore[attr-defined]
stand_in("kafka.coordinator.base", MemberState=sys.modules["kafka.structs"].MemberState)

fixtures = ModuleType("test.integration.fixtures")
vars(fixtures).update(KafkaFixture=Log, ZookeeperFixture=Log, create_topics=create_topics, client_params=client_params)
sys.modules["test.integration.fixtures"] = fixtures

mocks = ModuleType(
    "test.mock_broker"
)  # uses the wire protocol, and exists only in a checkout; tests that need it are excluded
vars(mocks).update(MockBroker=None, MockCluster=None)
sys.modules["test.mock_broker"] = mocks


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "timeout: of pytest-timeout, which is not installed here")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    before = outcomes.get(report.nodeid)
    if report.failed or (report.skipped and before is None):
        outcomes[report.nodeid] = report.outcome
    elif report.when == "call" and before is None:
        outcomes[report.nodeid] = "passed"


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        outcomes[report.nodeid] = "failed"


def pytest_sessionfinish() -> None:
    Path(os.environ["SPARKLOG_OUTCOMES"]).write_text(json.dumps(outcomes))
