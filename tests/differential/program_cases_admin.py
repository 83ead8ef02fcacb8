"""Cases of kafka-python's admin client."""

from __future__ import annotations

from typing import Any

from tests.differential.cases import program, programs
from tests.differential.outcomes import AtLeast
from tests.differential.targets import Workspace


def group_with_offset(w: Workspace, offset: int = 1) -> str:
    """Create a group without members that has committed this offset in a topic of three records."""
    group, topic = "g-" + w.prefix, w.filled(b"0", b"1", b"2")
    consumer = w.consumer(group_id=group, enable_auto_commit=False)
    consumer.commit({w.partition(topic): w.kafka.OffsetAndMetadata(offset, "note", -1)})
    consumer.close()
    return group


def parts(answer: Any, *names: str) -> Any:
    return {name: answer.get(name, "absent") for name in names}


# -- topics

CREATED: dict[str, Any] = {
    "names": lambda w: [w.prefix],
    "defaults": lambda w: {w.prefix: {}},
    "partitions": lambda w: {w.prefix: {"num_partitions": 3, "replication_factor": 1}},
    "assignments": lambda w: {w.prefix: {"assignments": {0: [0], 1: [0]}}},
    "configs": lambda w: {w.prefix: {"configs": {"retention.ms": "1000"}}},
    "unknown_config": lambda w: {w.prefix: {"configs": {"no.such": "1"}}},
    "wrong_config": lambda w: {w.prefix: {"configs": {"retention.ms": "x"}}},
    "number_config": lambda w: {w.prefix: {"configs": {"retention.ms": 1000}}},
    "0_partitions": lambda w: {w.prefix: {"num_partitions": 0, "replication_factor": 1}},
    "too_many_replicas": lambda w: {w.prefix: {"num_partitions": 1, "replication_factor": 9}},
    "invalid_name": lambda w: ["a b"],
    "empty_name": lambda w: [""],
    "dots": lambda w: [".."],
    "long_name": lambda w: ["t" * 250],
    "nothing": lambda w: [],
    "text": lambda w: w.prefix,
    "number": lambda w: [5],
}


def creating(topics: Any) -> Any:
    def case(w: Workspace) -> Any:
        answer = w.admin().create_topics(topics(w))
        return [
            [each["name"], each["error_code"], each.get("num_partitions"), each.get("replication_factor")]
            for each in answer["topics"]
        ]

    return case


programs(**{f"admin_create_{name}": creating(topics) for name, topics in CREATED.items()})
programs(
    admin_create_twice=lambda w: w.admin().create_topics([w.topic()]),
    admin_create_twice_quiet=lambda w: [
        [t["name"], t["error_code"]] for t in w.admin().create_topics([w.topic()], raise_errors=False)["topics"]
    ],
    admin_create_validate_only=lambda w: (
        w.admin().create_topics([w.prefix], validate_only=True),
        w.prefix in w.admin().list_topics(),
    )[-1],
    admin_create_validate_and_wait=lambda w: w.admin().create_topics(
        [w.prefix], validate_only=True, wait_for_metadata=True
    ),
    admin_create_new_topic_objects=lambda w: [
        t["name"] for t in w.admin().create_topics([w.admins.NewTopic(w.prefix, 2, 1)])["topics"]
    ],
    admin_new_topic_positional=lambda w: vars(w.admins.NewTopic("t", 2, 1, topic_configs={"a": "b"})),
    admin_colliding_names=lambda w: (w.topic("-a.b"), w.admin().create_topics([w.prefix + "-a_b"]))[-1],
    admin_list_topics=lambda w: (w.topic(), type(w.admin().list_topics()), w.prefix in w.admin().list_topics())[1:],
    admin_delete_topics=lambda w: [
        [r["name"], r["error_code"]] for r in w.admin().delete_topics([w.topic()])["topics"]
    ],
    admin_delete_unknown=lambda w: w.admin().delete_topics([w.prefix]),
    admin_delete_unknown_quiet=lambda w: [
        r["error_code"] for r in w.admin().delete_topics([w.prefix], raise_errors=False)["topics"]
    ],
    admin_delete_nothing=lambda w: w.admin().delete_topics([]),
    admin_describe_topics=lambda w: [
        {
            **parts(t, "error_code", "name", "is_internal"),
            "partitions": [
                parts(p, "error_code", "partition_index", "leader_id", "replica_nodes", "isr_nodes", "offline_replicas")
                for p in sorted(t["partitions"], key=lambda p: p["partition_index"])
            ],
            "keys": AtLeast(t),
        }
        for t in w.admin().describe_topics([w.topic(partitions=2)])
    ],
    admin_describe_unknown=lambda w: [parts(t, "error_code", "name") for t in w.admin().describe_topics([w.prefix])],
    admin_describe_all=lambda w: (w.topic(), w.prefix in [t["name"] for t in w.admin().describe_topics()])[-1],
    admin_wait_for_topics=lambda w: w.admin().wait_for_topics([w.topic()]),
    admin_wait_for_unknown=lambda w: w.admin().wait_for_topics([w.prefix], timeout_ms=300),
)


# -- partitions

GROWTH: dict[str, Any] = {
    "number": lambda w: {w.topic(): 3},
    "objects": lambda w: {w.topic(): w.admins.NewPartitions(3)},
    "fewer": lambda w: {w.topic(partitions=3): 2},
    "same": lambda w: {w.topic(partitions=3): 3},
    "unknown": lambda w: {w.prefix: 3},
    "text": lambda w: {w.topic(): "3"},
    "assignment": lambda w: {w.topic(): w.admins.NewPartitions(2, [[0]])},
    "wrong_assignment": lambda w: {w.topic(): w.admins.NewPartitions(2, [[77]])},
}


def growing(change: Any) -> Any:
    def case(w: Workspace) -> Any:
        answer = w.attempt(lambda: w.admin().create_partitions(change(w)))
        if not isinstance(answer, Exception):
            answer = "done"
        return {"answer": answer, "partitions": w.consumer().partitions_for_topic(w.prefix)}

    return case


programs(**{f"admin_partitions_{name}": growing(change) for name, change in GROWTH.items()})
programs(
    admin_partitions_validate=lambda w: (
        w.admin().create_partitions({w.topic(): 3}, validate_only=True),
        w.consumer().partitions_for_topic(w.prefix),
    )[-1],
    admin_delete_records=lambda w: w.admin().delete_records({w.partition(w.filled(b"0", b"1", b"2")): 2}),
    admin_delete_all_records=lambda w: w.admin().delete_records({w.partition(w.filled(b"0", b"1", b"2")): -1}),
    admin_delete_records_beyond=lambda w: w.admin().delete_records({w.partition(w.filled(b"0")): 9}),
    admin_delete_records_negative=lambda w: w.admin().delete_records({w.partition(w.filled(b"0")): -2}),
    admin_delete_records_unknown=lambda w: w.admin().delete_records({w.partition(w.prefix): 1}),
    admin_delete_records_reading=lambda w: (
        w.admin().delete_records({w.partition(w.filled(b"0", b"1", b"2")): 2}),
        c := w.reader(),
        c.assign([w.partition(w.prefix)]),
        [r.offset for r in w.poll(c, 1)],
    )[-1],
    admin_partition_offsets=lambda w: w.admin().list_partition_offsets(
        {w.partition(w.filled(b"0", b"1")): w.admins.OffsetSpec.LATEST}
    ),
    admin_partition_offsets_earliest=lambda w: w.admin().list_partition_offsets(
        {w.partition(w.filled(b"0", b"1")): w.admins.OffsetSpec.EARLIEST}
    ),
    admin_partition_offsets_unknown=lambda w: w.admin().list_partition_offsets(
        {w.partition(w.prefix): w.admins.OffsetSpec.LATEST}
    ),
    admin_partition_offsets_of_late_times=lambda w: w.admin().list_partition_offsets(
        {w.partition(w.filled(b"0")): 9_000_000_000_000}
    ),
    admin_partition_offsets_text=lambda w: w.admin().list_partition_offsets({w.partition(w.filled(b"0")): "latest"}),
    admin_reassign_to_unknown=lambda w: w.admin().alter_partition_reassignments({w.partition(w.topic()): [77]}),
    admin_list_reassignments=lambda w: w.admin().list_partition_reassignments([w.partition(w.topic())]),
)


# -- configs


def resource(w: Workspace, kind: str, name: Any, configs: Any = None) -> Any:
    return w.admins.ConfigResource(kind, name, configs)


def described(w: Workspace, **named: Any) -> Any:
    return w.admin().describe_configs([resource(w, "TOPIC", w.prefix)], **named)["topic"][w.prefix]


def altered(change: dict[str, Any]) -> Any:
    def case(w: Workspace) -> Any:
        w.topic(configs={"retention.ms": "5000"})
        answer = w.attempt(lambda: w.admin().alter_configs([resource(w, "TOPIC", w.prefix, change)]))
        if not isinstance(answer, Exception):
            answer = answer["topic"][w.prefix].split(":")[0].split("] ")[-1]
        values = {name: each["value"] for name, each in described(w).items() if name != "min.insync.replicas"}
        return {"answer": answer, "values": values}

    return case


CHANGES: dict[str, dict[str, Any]] = {
    "set": {"max.message.bytes": "2000"},
    "set_number": {"max.message.bytes": 2000},
    "unknown": {"no.such": "1"},
    "wrong": {"retention.ms": "x"},
    "out_of_range": {"max.message.bytes": "-1"},
    "empty": {"retention.ms": ""},
    "list": {"cleanup.policy": "compact,delete"},
    "wrong_choice": {"cleanup.policy": "burn"},
    "two_one_wrong": {"segment.ms": "60000", "retention.ms": "x"},
}
programs(**{f"admin_configs_{name}": altered(change) for name, change in CHANGES.items()})
programs(
    admin_configs_modified=lambda w: (
        w.topic(configs={"retention.ms": "5000"}),
        parts(described(w)["retention.ms"], "value", "config_source", "config_type", "is_sensitive", "read_only"),
    )[-1],
    admin_configs_all_names=lambda w: (w.topic(), AtLeast(described(w, config_filter="all")))[-1],
    admin_configs_defaults=lambda w: (
        w.topic(),
        AtLeast(f"{name}={each['value']}" for name, each in described(w, config_filter="all").items()),
    )[-1],
    admin_configs_only_named=lambda w: (
        w.topic(),
        sorted(
            w.admin().describe_configs(
                [resource(w, "TOPIC", w.prefix, {"retention.ms": None, "segment.ms": None})], config_filter="all"
            )["topic"][w.prefix]
        ),
    )[-1],
    admin_configs_unknown_topic=lambda w: w.admin().describe_configs([resource(w, "TOPIC", w.prefix)]),
    admin_configs_reset=lambda w: (
        w.topic(configs={"retention.ms": "5000"}),
        w.admin().reset_configs([resource(w, "TOPIC", w.prefix, ["retention.ms"])]),
        "retention.ms" in described(w),
    )[-1],
    admin_configs_reset_of_what_is_not_set=lambda w: (
        w.topic(),
        w.admin().reset_configs([resource(w, "TOPIC", w.prefix, ["retention.ms"])]),
    )[-1],
    admin_config_resource_kind=lambda w: w.admins.ConfigResource("NOTHING", "a"),
    admin_config_resource_attributes=lambda w: [
        (r := resource(w, "topic", "a", {"x": "1"})).resource_type,
        r.name,
        r.configs,
    ],
    admin_config_resource_equality=lambda w: resource(w, "TOPIC", "a") == resource(w, "TOPIC", "a"),
)


# -- groups

programs(
    admin_list_groups=lambda w: [
        parts(g, "group_id", "protocol_type", "group_state", "group_type")
        for g in (group_with_offset(w), w.admin().list_groups())[-1]
        if g["group_id"] == "g-" + w.prefix
    ],
    admin_list_groups_by_state=lambda w: (
        group_with_offset(w),
        [
            "g-" + w.prefix in [g["group_id"] for g in w.admin().list_groups(states_filter=[s])]
            for s in ("Empty", "Stable")
        ],
    )[-1],
    admin_list_groups_unknown_state=lambda w: w.admin().list_groups(states_filter=["Tired"]),
    admin_describe_group=lambda w: {
        name: value
        for name, value in w.admin().describe_groups([group_with_offset(w)])["g-" + w.prefix].items()
        if name not in ("authorized_operations", "error_message")
    },
    admin_describe_group_keys=lambda w: AtLeast(w.admin().describe_groups([group_with_offset(w)])["g-" + w.prefix]),
    admin_describe_unknown_group=lambda w: parts(
        w.admin().describe_groups(["nobody-" + w.prefix])["nobody-" + w.prefix],
        "group_state",
        "members",
        "protocol_type",
    ),
    admin_group_offsets=lambda w: w.admin().list_group_offsets(group_with_offset(w)),
    admin_group_offsets_of_partitions=lambda w: w.admin().list_group_offsets(
        {group_with_offset(w): [w.partition(w.prefix)]}
    ),
    admin_group_offsets_of_unknown=lambda w: w.admin().list_group_offsets("nobody-" + w.prefix),
    admin_group_offsets_of_nothing=lambda w: w.admin().list_group_offsets({}),
    admin_delete_group=lambda w: w.admin().delete_groups([group_with_offset(w)]),
    admin_delete_unknown_group=lambda w: w.admin().delete_groups(["nobody-" + w.prefix]),
    admin_alter_group_offsets=lambda w: w.admin().alter_group_offsets(
        group_with_offset(w), {w.partition(w.prefix): w.kafka.OffsetAndMetadata(3, "", -1)}
    ),
    admin_alter_group_offsets_none_epoch=lambda w: w.admin().alter_group_offsets(
        group_with_offset(w), {w.partition(w.prefix): w.kafka.OffsetAndMetadata(3, "", None)}
    ),
    admin_alter_offsets_of_new_group=lambda w: (
        w.admin().alter_group_offsets(
            "new-" + w.prefix, {w.partition(w.topic()): w.kafka.OffsetAndMetadata(3, "", -1)}
        ),
        w.admin().list_group_offsets("new-" + w.prefix),
    ),
    admin_reset_group_offsets=lambda w: w.admin().reset_group_offsets(
        group_with_offset(w), {w.partition(w.prefix): w.admins.OffsetSpec.LATEST}
    ),
    admin_reset_group_offsets_to_number=lambda w: w.admin().reset_group_offsets(
        group_with_offset(w), {w.partition(w.prefix): 99}
    ),
    admin_delete_group_offsets=lambda w: (
        w.admin().delete_group_offsets(group_with_offset(w), [w.partition(w.prefix)]),
        w.admin().list_group_offsets("g-" + w.prefix),
    ),
    admin_delete_offsets_of_unknown_group=lambda w: w.admin().delete_group_offsets(
        "nobody-" + w.prefix, [w.partition(w.topic())]
    ),
)


def live_group(w: Workspace) -> Any:
    consumer = w.consumer(w.filled(b"0"), group_id="g-" + w.prefix, auto_offset_reset="earliest")
    w.poll(consumer, 1)
    return consumer


programs(
    admin_delete_live_group=lambda w: (live_group(w), w.admin().delete_groups(["g-" + w.prefix]))[-1],
    admin_delete_offsets_of_live_group=lambda w: (
        live_group(w),
        w.admin().delete_group_offsets("g-" + w.prefix, [w.partition(w.prefix)]),
    )[-1],
    admin_alter_offsets_of_live_group=lambda w: (
        live_group(w),
        w.admin().alter_group_offsets("g-" + w.prefix, {w.partition(w.prefix): w.kafka.OffsetAndMetadata(1, "", -1)}),
    )[-1],
    admin_describe_live_group=lambda w: (
        live_group(w),
        found := w.admin().describe_groups(["g-" + w.prefix])["g-" + w.prefix],
        {
            **parts(found, "group_state", "protocol_type", "protocol_data"),
            "members": len(found["members"]),
            "keys": AtLeast(found["members"][0]),
        },
    )[-1],
    admin_remove_members=lambda w: (
        (
            consumer := live_group(w),
            w.admin().remove_group_members(
                "g-" + w.prefix, [w.admins.MemberToRemove(member_id=consumer.group_metadata().member_id)]
            ),
        )[-1]
        and None
    ),
)


# -- the cluster


@program
def admin_describe_cluster(w: Workspace) -> Any:
    found = w.admin().describe_cluster()
    return {
        "keys": AtLeast(found),
        "brokers": [AtLeast(each) for each in found["brokers"]],
        "controller is a broker": found["controller_id"] in [each["broker_id"] for each in found["brokers"]]
        if found["brokers"] and "broker_id" in found["brokers"][0]
        else [each.get("node_id") for each in found["brokers"]],
        "cluster_id": isinstance(found["cluster_id"], str),
    }


@program
def admin_log_dirs(w: Workspace) -> Any:
    topic = w.filled(b"0")
    found = w.admin().describe_log_dirs()
    return {"type": type(found), "topic": topic in str(found)}


programs(
    admin_unknown_setting=lambda w: w.admin(no_such_setting=1),
    admin_close_twice=lambda w: (a := w.admin(), a.close(), a.close())[-1],
    admin_after_close=lambda w: isinstance((a := w.admin(), a.close(), w.attempt(a.list_topics))[-1], Exception),
    admin_create_acls=lambda w: w.admin().create_acls([]),
    admin_describe_users=lambda w: type(w.attempt(lambda: w.admin().describe_user_scram_credentials())),
)
