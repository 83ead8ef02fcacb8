"""The admin client: arguments, cluster, transactions, refusals, and every method of kafka-python's."""

from __future__ import annotations

import inspect
import logging
import re
from functools import partial
from pathlib import Path

import pytest

from sparklog.client.admin.client import AdminClient
from sparklog.client.admin.types import (
    ConfigResourceType,
    GroupState,
    OffsetSpec,
    ProducerState,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)
from sparklog.client.producer.producer import Producer
from sparklog.coordinator import Coordinator, create_cluster
from sparklog.errors import (
    IllegalStateError,
    InvalidConfigurationError,
    InvalidRequestError,
    NotFoundError,
    TransactionalIdNotFoundError,
    UnknownTopicOrPartitionError,
)
from sparklog.protocol.commits import ApplicationWrite
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.decide.producers import init_producer
from sparklog.types import TopicPartition
from tests.cluster.client.admin_clusters import with_orders

KAFKA_PYTHON = """
abort_transaction(spec)
alter_configs(config_resources, validate_only=False, raise_on_unknown=True, incremental=None)
alter_group_offsets(group_id, offsets, group_coordinator_id=None)
alter_partition_reassignments(reassignments, timeout_ms=None)
alter_replica_log_dirs(replica_assignments)
alter_user_scram_credentials(alterations)
api_versions()
close()
create_acls(acls)
create_partitions(topic_partitions, timeout_ms=None, validate_only=False, raise_errors=True)
create_topics(new_topics, timeout_ms=None, validate_only=False, raise_errors=True, wait_for_metadata=False)
delete_acls(acl_filters)
delete_group_offsets(group_id, partitions, group_coordinator_id=None)
delete_groups(group_ids, group_coordinator_id=None)
delete_records(records_to_delete, timeout_ms=None, partition_leader_id=None)
delete_topics(topics, timeout_ms=None, raise_errors=True)
describe_acls(acl_filter)
describe_cluster()
describe_configs(config_resources, include_synonyms=False, config_filter='modified')
describe_features(send_request_to_controller=False)
describe_groups(group_ids, group_coordinator_id=None, include_authorized_operations=False)
describe_log_dirs(topic_partitions=None, brokers=None)
describe_metadata_quorum()
describe_producers(partitions, broker_id=None)
describe_topic_partitions(topics, response_partition_limit=2000, cursor=None)
describe_topics(topics=None)
describe_transactions(transactional_ids)
describe_user_scram_credentials(users=None)
elect_leaders(election_type, topic_partitions=None, timeout_ms=None, raise_errors=True)
find_hanging_transactions(broker_ids=None, max_transaction_timeout_ms=900000)
get_broker_version_data(broker_id)
list_config_resources(resource_types=None)
list_group_offsets(group_specs)
list_groups(broker_ids=None, states_filter=None, types_filter=None)
list_partition_offsets(topic_partition_specs, isolation_level=<IsolationLevel.READ_UNCOMMITTED: 0>, timeout_ms=None)
list_partition_reassignments(topic_partitions=None, timeout_ms=None)
list_topics()
list_transactions(broker_ids=None, producer_id_filters=None, state_filters=None, duration_filter_ms=None, transactional_id_pattern=None)
remove_group_members(group_id, members, group_coordinator_id=None)
reset_configs(config_resources, validate_only=False, raise_on_unknown=True, incremental=None)
reset_group_offsets(group_id, offset_specs, group_coordinator_id=None)
update_features(feature_updates, validate_only=False, timeout_ms=60000)
wait_for_topics(topic_names, timeout_ms=10000)
describe_consumer_groups(group_ids, group_coordinator_id=None, include_authorized_operations=False)
list_consumer_group_offsets(group_id, group_coordinator_id=None, partitions=None)
list_consumer_groups(broker_ids=None)
delete_consumer_groups(group_ids, group_coordinator_id=None)
perform_leader_election(election_type, topic_partitions=None, timeout_ms=None)
"""  # noqa: E501
"""kafka-python 3.1's KafkaAdminClient, and after it the names of 2.3."""


@pytest.fixture
def cluster() -> Coordinator:
    return with_orders()


@pytest.fixture
def admin(cluster: Coordinator) -> AdminClient:
    return AdminClient(cluster=cluster)


@pytest.mark.parametrize("expected", KAFKA_PYTHON.strip().splitlines())
def test_every_method_of_kafka_python_has_its_arguments(expected: str) -> None:
    method = inspect.signature(getattr(AdminClient, expected.partition("(")[0]))
    parameters = [p.replace(annotation=inspect.Parameter.empty) for p in method.parameters.values()][1:]
    shown = inspect.Signature([p for p in parameters if p.kind is not p.KEYWORD_ONLY])  # keyword-only are our own
    assert f"{expected.partition('(')[0]}{shown}" == expected


# -- arguments


def test_a_root_may_be_a_folder_or_a_list_of_one(tmp_path: Path) -> None:
    root = str(tmp_path / "log")
    cluster_id = create_cluster(root).state.cluster_id
    for servers in (root, [root], tmp_path / "log"):
        with AdminClient(bootstrap_servers=servers, client_id="me") as admin:
            assert admin.describe_cluster()["cluster_id"] == cluster_id
            assert str(admin) == f"<AdminClient root={admin.describe_cluster()['brokers'][0]['host']} client_id=me>"


def test_arguments_for_sockets_are_accepted_with_a_debug_line(
    cluster: Coordinator, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="sparklog")
    AdminClient(cluster=cluster, security_protocol="SSL", retry_backoff_ms=1, api_version=(2, 8))
    assert "AdminClient(security_protocol=...) has no effect" in caplog.text
    assert "AdminClient(retry_backoff_ms=...) has no effect" in caplog.text


def test_an_unknown_argument_is_refused_with_a_suggestion(cluster: Coordinator) -> None:
    with pytest.raises(
        InvalidConfigurationError, match="no argument 'bootstrap_server'; did you mean bootstrap_servers"
    ):
        AdminClient(bootstrap_server="/data/log")  # type: ignore[call-arg]
    with pytest.raises(InvalidConfigurationError, match="bootstrap_servers=None"):
        AdminClient()


def test_a_closed_client_refuses_calls(admin: AdminClient) -> None:
    admin.close()
    admin.close()
    assert not admin.bootstrap_connected()
    for call in (admin.list_topics, admin.list_groups, admin.describe_cluster, admin.find_hanging_transactions):
        with pytest.raises(IllegalStateError, match="closed"):
            call()
    with pytest.raises(IllegalStateError):
        admin.delete_groups(["g"])


def test_the_example_of_the_document_runs(cluster: Coordinator, tmp_path: Path) -> None:
    document = Path(__file__).resolve().parents[3] / "docs" / "admin.md"
    (block,) = re.findall(r"^```python\n(.*?)^```$", document.read_text(), re.DOTALL | re.MULTILINE)
    root = str(tmp_path / "log")
    opened = create_cluster(root)
    exec(block.replace("/data/log", root))
    assert opened.refresh().topics["orders"].configs == {"retention.ms": "86400000", "cleanup.policy": "compact"}
    assert [committed.offset for committed in opened.state.groups["billing"].offsets.values()] == [0]


# -- cluster


def test_brokers_are_storage_locations(admin: AdminClient, cluster: Coordinator) -> None:
    assert admin.describe_cluster() == {
        "cluster_id": cluster.state.cluster_id,
        "controller_id": 0,
        "brokers": [
            {
                "broker_id": 0,
                "host": cluster.store.root,
                "port": -1,
                "rack": None,
                "is_fenced": False,
                "error_message": None,
            }
        ],
        "authorized_operations": None,
    }


def test_log_dirs_have_the_bytes_of_each_partition(admin: AdminClient, cluster: Coordinator) -> None:
    sizes = [partition.size_bytes for partition in cluster.state.topics["orders"].partitions]
    assert min(sizes) > 0
    (broker,) = admin.describe_log_dirs()
    assert broker["broker"] == 0
    (log_dir,) = broker["log_dirs"]
    assert log_dir["log_dir"] == cluster.store.root
    assert [partition["partition_size"] for partition in log_dir["topics"][0]["partitions"]] == sizes
    (filtered,) = admin.describe_log_dirs({"orders": [1]}, brokers=[0])
    assert [p["partition_index"] for p in filtered["log_dirs"][0]["topics"][0]["partitions"]] == [1]
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.describe_log_dirs(["nope"])
    with pytest.raises(InvalidRequestError, match="no broker 7"):
        admin.describe_log_dirs(brokers=[7])


# -- transactions


@pytest.fixture
def transactions(cluster: Coordinator) -> Coordinator:
    """Transactional id 'committed' has a transaction in orders-0, and 'new' has none."""
    with Producer(cluster=cluster, transactional_id="committed") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("orders", b"v", partition=0)
        producer.commit_transaction()
    cluster.submit(partial(init_producer, transactional_id="new"))
    cluster.submit(init_producer)
    return cluster


def test_transactional_ids_and_applications_are_forgotten_all_or_none(
    admin: AdminClient, transactions: Coordinator
) -> None:
    transactions.submit(lambda state: Decision([ApplicationWrite(application="hourly", application_version=7)], None))
    with pytest.raises(TransactionalIdNotFoundError):
        admin.forget_transactional_ids(["new", "nobody"])
    with pytest.raises(NotFoundError, match="unknown application 'nobody'"):
        admin.forget_applications(["hourly", "nobody"])
    admin.forget_transactional_ids(["new"])
    admin.forget_applications(["hourly"])
    state = admin.read_state()
    assert [producer.transactional_id for producer in state.producers.values()].count("new") == 0
    assert not state.applications


def test_transactional_ids_are_listed_and_filtered(admin: AdminClient, transactions: Coordinator) -> None:
    ids = {producer.transactional_id: number for number, producer in transactions.refresh().producers.items()}
    committed = TransactionListing("committed", ids["committed"], TransactionState.COMPLETE_COMMIT)
    new = TransactionListing("new", ids["new"], TransactionState.EMPTY)
    assert admin.list_transactions() == {0: [committed, new]}
    assert admin.list_transactions(state_filters=["empty"]) == {0: [new]}
    assert admin.list_transactions(state_filters=["complete-commit"]) == {0: [committed]}
    assert admin.list_transactions(producer_id_filters=[new.producer_id]) == {0: [new]}
    assert admin.list_transactions(transactional_id_pattern="comm.*") == {0: [committed]}
    assert admin.list_transactions(duration_filter_ms=0) == {0: []}
    assert admin.list_transactions(duration_filter_ms=-1) == {0: [committed, new]}
    with pytest.raises(InvalidRequestError, match="invalid regular expression"):
        admin.list_transactions(transactional_id_pattern="(")


def test_transactional_ids_are_described(admin: AdminClient, transactions: Coordinator) -> None:
    number, producer = next(
        item for item in transactions.refresh().producers.items() if item[1].transactional_id == "committed"
    )
    assert admin.describe_transactions(["committed"]) == {
        "committed": TransactionDescription(0, TransactionState.COMPLETE_COMMIT, number, producer.epoch, -1, -1, set())
    }
    with pytest.raises(NotFoundError, match="'nobody' is not known"):
        admin.describe_transactions(["nobody"])


def test_producers_of_a_partition_are_described(admin: AdminClient, transactions: Coordinator) -> None:
    described = admin.describe_producers([TopicPartition("orders", 0), TopicPartition("orders", 1)])
    (producer,) = described[TopicPartition("orders", 0)].active_producers
    assert isinstance(producer, ProducerState)
    assert (producer.last_sequence, producer.current_transaction_start_offset) == (0, -1)
    assert described[TopicPartition("orders", 1)].active_producers == []
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.describe_producers([TopicPartition("orders", 9)])


# -- answers


def test_no_reassignments_are_listed_at_first(admin: AdminClient) -> None:
    assert admin.list_partition_reassignments() == {}


def test_enum_members_are_looked_up_as_in_kafka_python() -> None:
    assert OffsetSpec.build_from("max-timestamp") is OffsetSpec.build_from(-3) is OffsetSpec.MAX_TIMESTAMP
    assert GroupState.build_from("stable") is GroupState.STABLE
    assert ConfigResourceType.value_for("topic") == 2
    with pytest.raises(ValueError, match="invalid OffsetSpec: 'soon'"):
        OffsetSpec.build_from("soon")
