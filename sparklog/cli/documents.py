"""What the commands print with ``--json``: one struct for each document, which the tables are printed from as well.

Rules: names are snake_case and Kafka's nouns, units last; what is not known or does not apply is null. Fields are added
in later versions, never renamed or removed. ``log-dirs`` is the exception: its document is Kafka's, with Kafka's names.
The text at each field is the documentation (``json_reference`` makes docs/cli-json.md of it).

Not for: how a document is made (the commands) and printed (``json_output``).
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Struct

from sparklog.cli.document_parts import Document, Item, says
from sparklog.cli.dump_documents import DumpedLine
from sparklog.cli.job_documents import JobList
from sparklog.maintenance.findings import Finding, Report

# -- topics, configs


class TopicName(Item, frozen=True, kw_only=True):
    """A topic."""

    topic: Annotated[str, says("its name")]
    topic_id: Annotated[str, says("its id; that of `__consumer_offsets` is zeros")]
    internal: Annotated[bool, says("whether it is one of Kafka's internal topics")]


class TopicNames(Document, frozen=True, kw_only=True):
    """The topics, by name."""

    topics: list[TopicName]


class PartitionDetails(Item, frozen=True, kw_only=True):
    """A partition of a described topic."""

    partition: Annotated[int, says("its number")]
    leader: Annotated[int | None, says("the broker that leads it; null: none does")]
    leader_epoch: Annotated[int, says("how often it had a new leader")]
    replicas: Annotated[list[int], says("the brokers that hold it, the preferred leader first")]
    isr: Annotated[list[int], says("those of them that are in sync")]
    adding_replicas: Annotated[list[int], says("those that a reassignment brings")]
    removing_replicas: Annotated[list[int], says("those that a reassignment takes away")]


class TopicDetails(Item, frozen=True, kw_only=True):
    """A described topic."""

    topic: Annotated[str, says("its name")]
    topic_id: Annotated[str, says("its id")]
    partition_count: Annotated[int, says("how many partitions it has, listed here or not")]
    replication_factor: Annotated[int, says("how many replicas a partition has, without those that are being added")]
    configs: Annotated[dict[str, str], says("its settings that are not the default's")]
    partitions: Annotated[
        list[PartitionDetails],
        says(
            "its partitions; with `--under-replicated-partitions` and the other reports those alone, and topics "
            "without such a partition are left out; with `--topics-with-overrides` none"
        ),
    ]


class TopicDescriptions(Document, frozen=True, kw_only=True):
    """The topics that were asked for."""

    topics: list[TopicDetails]


class SynonymDetails(Item, frozen=True, kw_only=True):
    """A place that gives a setting its value, or would."""

    source: Annotated[str, says("`DYNAMIC_TOPIC_CONFIG`, `DYNAMIC_DEFAULT_BROKER_CONFIG` or `DEFAULT_CONFIG`")]
    name: Annotated[str, says("the name that is used there")]
    value: Annotated[str, says("its value there")]


class SettingDetails(Item, frozen=True, kw_only=True):
    """A setting of a topic or of the cluster."""

    name: Annotated[str, says("its name")]
    value: Annotated[str | None, says("its value; null: it has none")]
    source: Annotated[str, says("where the value comes from, as in `synonyms`")]
    has_effect: Annotated[bool, says("whether anything acts on it; if not, it is stored and shown")]
    synonyms: Annotated[list[SynonymDetails], says("where the value could come from, the one that holds first")]


class EntityDetails(Item, frozen=True, kw_only=True):
    """A topic, a broker or the cluster with its settings."""

    type: Annotated[Literal["topics", "brokers"], says("what it is")]
    name: Annotated[str | None, says("the topic or the broker's id; null: the cluster's defaults")]
    configs: Annotated[list[SettingDetails], says("those that are set for it, or with `--all` all")]


class ConfigDescriptions(Document, frozen=True, kw_only=True):
    """The entities that were asked for, each with its settings."""

    entities: list[EntityDetails]


# -- offsets, groups


class PartitionOffset(Item, frozen=True, kw_only=True):
    """An offset of a partition."""

    topic: Annotated[str, says("the topic")]
    partition: Annotated[int, says("the partition")]
    offset: Annotated[int | None, says("the offset; null: it has no such offset, and Kafka's listing has no line")]


class OffsetList(Document, frozen=True, kw_only=True):
    """The partitions that were asked for, by topic and number."""

    offsets: list[PartitionOffset]


class GroupName(Item, frozen=True, kw_only=True):
    """A group."""

    group: Annotated[str, says("its id")]
    type: Annotated[str, says("its type: `Classic`")]
    protocol: Annotated[str, says("`consumer`, or empty where nobody was ever a member")]


class GroupList(Document, frozen=True, kw_only=True):
    """All groups, by id."""

    groups: list[GroupName]


class ConsumerGroupName(Item, frozen=True, kw_only=True):
    """A consumer group."""

    group: Annotated[str, says("its id")]
    type: Annotated[str, says("its type: `Classic`")]
    state: Annotated[str, says("its state: `Stable`, `Empty`, `PreparingRebalance` …")]


class ConsumerGroupList(Document, frozen=True, kw_only=True):
    """The consumer groups, by id."""

    groups: list[ConsumerGroupName]


class OffsetDetails(Item, frozen=True, kw_only=True):
    """How far a group is in a partition."""

    topic: Annotated[str, says("the topic")]
    partition: Annotated[int, says("the partition")]
    leader_epoch: Annotated[int | None, says("the leader epoch that was committed with the offset")]
    current_offset: Annotated[int | None, says("what the group has committed; null: nothing")]
    log_end_offset: Annotated[int, says("where the partition ends")]
    lag: Annotated[int | None, says("how many offsets are between them")]
    consumer_id: Annotated[str | None, says("the member that holds the partition; null: no member does")]
    host: Annotated[str | None, says("where that member runs")]
    client_id: Annotated[str | None, says("its client id")]


class PartitionName(Item, frozen=True, kw_only=True):
    """A partition."""

    topic: Annotated[str, says("the topic")]
    partition: Annotated[int, says("the partition")]


class MemberDetails(Item, frozen=True, kw_only=True):
    """A member of a group."""

    consumer_id: Annotated[str, says("its id")]
    group_instance_id: Annotated[str | None, says("its `group.instance.id`; null: it has none")]
    host: Annotated[str | None, says("where it runs")]
    client_id: Annotated[str | None, says("its client id")]
    assignment: Annotated[list[PartitionName], says("what it holds, with what it has to give up")]
    target_assignment: Annotated[list[PartitionName], says("what it is to have")]


class ConsumerGroupDetails(Item, frozen=True, kw_only=True):
    """A described consumer group."""

    group: Annotated[str, says("its id")]
    type: Annotated[str, says("its type: `Classic`")]
    state: Annotated[str, says("its state: `Stable`, `Empty`, `PreparingRebalance` …")]
    assignor: Annotated[str | None, says("the assignor that its members agreed on; null: there is none")]
    generation: Annotated[int, says("how often its members have been assigned to")]
    member_count: Annotated[int, says("how many members it has")]
    offsets: Annotated[list[OffsetDetails] | None, says("its offsets; null with `--members` and `--state`")]
    members: Annotated[list[MemberDetails] | None, says("its members; null unless with `--members`")]


class ConsumerGroupDescriptions(Document, frozen=True, kw_only=True):
    """The groups that were asked for; one that does not exist is left out, said on standard error, and makes the exit
    code 1."""

    groups: list[ConsumerGroupDetails]


# -- transactions, applications


class TransactionName(Item, frozen=True, kw_only=True):
    """A transactional id."""

    transactional_id: Annotated[str, says("the id")]
    coordinator: Annotated[int, says("a broker's id")]
    producer_id: Annotated[int, says("the producer that has it now")]
    state: Annotated[str, says("`Empty` or `CompleteCommit`")]


class TransactionList(Document, frozen=True, kw_only=True):
    """The transactional ids, by name."""

    transactions: list[TransactionName]


class TransactionDetails(Document, frozen=True, kw_only=True):
    """A transactional id."""

    transactional_id: Annotated[str, says("the id")]
    coordinator: Annotated[int, says("a broker's id")]
    producer_id: Annotated[int, says("the producer that has it now")]
    producer_epoch: Annotated[int, says("its epoch")]
    state: Annotated[str, says("`Empty` or `CompleteCommit`")]
    transaction_timeout_ms: Annotated[int | None, says("the producer's timeout in ms; null: not known")]


class ProducerDetails(Item, frozen=True, kw_only=True):
    """A producer that a partition knows."""

    producer_id: Annotated[int, says("its id")]
    producer_epoch: Annotated[int, says("its epoch")]
    last_sequence: Annotated[int | None, says("the sequence of its last record; null: none is remembered")]
    last_timestamp: Annotated[int, says("when it last wrote, in ms since 1970")]


class ProducerList(Document, frozen=True, kw_only=True):
    """The producers that a partition knows."""

    topic: Annotated[str, says("the topic")]
    partition: Annotated[int, says("the partition")]
    producers: list[ProducerDetails]


class HangingTransactions(Document, frozen=True, kw_only=True):
    """The transactions that hang: always none, since a transaction is one commit."""

    transactions: list[TransactionName]


class ApplicationDetails(Item, frozen=True, kw_only=True):
    """An application whose numbered writes are remembered."""

    application: Annotated[str, says("its `txnAppId`, or a streaming query's id")]
    version: Annotated[int, says("the number of its newest write")]
    commit_version: Annotated[int, says("the commit of that write")]


class ApplicationList(Document, frozen=True, kw_only=True):
    """The applications, by id."""

    applications: list[ApplicationDetails]


# -- brokers, cluster


class BrokerDetails(Item, frozen=True, kw_only=True):
    """A broker, which is a storage location."""

    broker: Annotated[int, says("its id")]
    state: Annotated[
        Literal["online", "unreachable", "offline"],
        says(
            "`online`: it answered; `unreachable`: it did not answer now, and the cluster still counts on it; "
            "`offline`: the controller took it out"
        ),
    ]
    cordoned: Annotated[bool, says("whether it gets no new replicas")]
    last_seen_ms: Annotated[
        int | None, says("when it last answered, in ms since 1970: now, or at its latest check; null: not known")
    ]
    problem: Annotated[str | None, says("why it is unreachable")]
    replicas: Annotated[int, says("replicas that it holds")]
    out_of_sync: Annotated[int, says("those of them that are not in sync")]
    leaders: Annotated[int, says("partitions that it leads")]
    size_bytes: Annotated[int, says("bytes of the live segments of its replicas in sync")]
    location: Annotated[str, says("its address")]


class BrokerList(Document, frozen=True, kw_only=True):
    """The brokers, by id."""

    brokers: list[BrokerDetails]


class ClusterIdentity(Document, frozen=True, kw_only=True):
    """Which cluster it is."""

    cluster_id: Annotated[str, says("its id")]


class Endpoint(Item, frozen=True, kw_only=True):
    """Where a broker is."""

    id: Annotated[int, says("the broker's id")]
    host: Annotated[str, says("its location: a path or URL")]
    port: Annotated[int, says("-1: a location has no port")]
    rack: Annotated[str | None, says("null: there are no racks")]
    state: Annotated[Literal["unfenced", "fenced"], says("`fenced`: the controller took it out, or it did not answer")]
    endpoint_type: Annotated[Literal["broker"], says("what it is")]


class EndpointList(Document, frozen=True, kw_only=True):
    """The brokers' addresses, by id."""

    endpoints: list[Endpoint]


class ClusterBroker(Item, frozen=True, kw_only=True):
    """A broker of a described cluster."""

    broker: Annotated[int, says("its id")]
    location: Annotated[str, says("its address")]
    online: Annotated[bool, says("whether the cluster counts on it")]
    state: Annotated[Literal["online", "unreachable", "offline"], says("how it is now, as in `brokers list`")]
    cordoned: Annotated[bool, says("whether it gets no new replicas")]


class ClusterTopic(Item, frozen=True, kw_only=True):
    """A topic of a described cluster."""

    topic: Annotated[str, says("its name")]
    partitions: Annotated[int, says("how many partitions it has")]
    segments: Annotated[int, says("how many segments")]
    records: Annotated[int, says("how many offsets can be read")]
    size_bytes: Annotated[int, says("bytes of its live segments")]


class ClusterDescription(Document, frozen=True, kw_only=True):
    """The cluster."""

    cluster_id: Annotated[str, says("its id")]
    root: Annotated[str, says("its address")]
    level: Annotated[int, says("which of the format's additions are in use")]
    needs_version: Annotated[str, says("the version of sparklog that this level needs")]
    version: Annotated[int, says("the number of its newest commit")]
    timestamp_ms: Annotated[int, says("the time of that commit, in ms since 1970")]
    boundary: Annotated[int | None, says("commits up to this one may be gone; null: all are kept")]
    checkpoint: Annotated[int | None, says("the newest checkpoint's version; null: there is none yet")]
    controller: Annotated[str | None, says("the controller's name; null: there was none yet")]
    controller_epoch: Annotated[int, says("how often it had a new controller")]
    removed_files: Annotated[int, says("files that left the log and are not deleted yet")]
    removed_bytes: Annotated[int, says("bytes of these")]
    brokers: list[ClusterBroker]
    topics: list[ClusterTopic]


class LogDirPartition(Item, frozen=True, kw_only=True, rename="camel"):
    """A replica in a log dir; Kafka's names."""

    partition: Annotated[str, says("topic and number, as `orders-0`")]
    size: Annotated[int, says("bytes of its live segments")]
    offset_lag: Annotated[int, says("0 in sync, else -1")]
    is_future: Annotated[bool, says("whether a reassignment is bringing it")]


class LogDir(Item, frozen=True, kw_only=True, rename="camel"):
    """The one log dir of a broker; Kafka's names."""

    log_dir: Annotated[str, says("the broker's location")]
    error: Annotated[
        str | None, says("the class that Kafka's tool names where the location is offline or did not answer")
    ]
    partitions: Annotated[list[LogDirPartition], says("the replicas there; none where there is an error")]


class LogDirBroker(Item, frozen=True, kw_only=True, rename="camel"):
    """A broker and what it holds; Kafka's names."""

    broker: Annotated[int, says("its id")]
    log_dirs: list[LogDir]


class LogDirDescription(Document, frozen=True, kw_only=True, rename="camel"):
    """Kafka's document, which is printed without `--json` as well, after two lines of text."""

    version: Annotated[int, says("1")]
    brokers: list[LogDirBroker]


# -- replicas


class ElectionOutcome(Item, frozen=True, kw_only=True):
    """What an election came to."""

    topic: Annotated[str, says("the topic")]
    partition: Annotated[int, says("the partition")]
    outcome: Annotated[
        Literal["elected", "not-needed", "failed"], says("`not-needed`: the right replica leads already")
    ]
    error: Annotated[str | None, says("why it failed")]


class ElectionResult(Document, frozen=True, kw_only=True):
    """The elections that were asked for; the exit code is 1 if one failed."""

    election_type: Annotated[Literal["PREFERRED", "UNCLEAN"], says("what was asked for")]
    partitions: list[ElectionOutcome]


class ReassignmentDetails(Item, frozen=True, kw_only=True):
    """A partition whose replicas are being moved."""

    topic: Annotated[str, says("the topic")]
    partition: Annotated[int, says("the partition")]
    replicas: Annotated[list[int], says("the brokers that hold it or are to")]
    adding_replicas: Annotated[list[int], says("those that it gets")]
    removing_replicas: Annotated[list[int], says("those that it leaves")]


class ReassignmentList(Document, frozen=True, kw_only=True):
    """The reassignments that are in progress."""

    reassignments: list[ReassignmentDetails]


class ReassignmentStatus(Item, frozen=True, kw_only=True):
    """How far a reassignment is."""

    topic: Annotated[str, says("the topic")]
    partition: Annotated[int, says("the partition")]
    state: Annotated[
        Literal["completed", "in-progress", "differs"],
        says("`differs`: nothing is being moved, and the replicas are not those of the file"),
    ]
    replicas: Annotated[list[int], says("the brokers that hold it now; empty if the partition does not exist")]
    wanted_replicas: Annotated[list[int], says("those that the file wants")]


class ReassignmentVerification(Document, frozen=True, kw_only=True):
    """The partitions of the file. As without `--json` the throttle is lifted when nothing is being moved."""

    partitions: list[ReassignmentStatus]
    throttles_cleared: Annotated[bool, says("whether the throttle was lifted")]


class DeletedRecords(Item, frozen=True, kw_only=True):
    """What became of a partition."""

    topic: Annotated[str, says("the topic")]
    partition: Annotated[int, says("the partition")]
    low_watermark: Annotated[int | None, says("where it begins now; null: nothing was deleted")]
    error: Annotated[str | None, says("why not")]


class RecordDeletion(Document, frozen=True, kw_only=True):
    """The partitions of the file, in its order."""

    partitions: list[DeletedRecords]


class ReplicaLag(Item, frozen=True, kw_only=True):
    """How far the replica of a partition that is furthest behind is."""

    topic: Annotated[str, says("the topic")]
    partition: Annotated[int, says("the partition")]
    lag: Annotated[int, says("records that it lacks at the end")]
    offset: Annotated[int, says("the offset up to which it has all")]


class ReplicaVerification(Document, frozen=True, kw_only=True):
    """What reading all replicas in sync came to; the exit code is 1 if there are differences."""

    differences: Annotated[list[Finding], says("what is damaged, and where sound copies differ, as in `fsck`")]
    partitions: list[ReplicaLag]


# -- maintenance


class MaintenanceStep(Document, frozen=True, kw_only=True):
    """What a step did. `maintain --loop --json` prints one of these a line, whenever it has something to say."""

    step: Annotated[str, says("its name")]
    counts: Annotated[dict[str, int], says("what it did, how often; bytes where the name begins so")]
    notes: Annotated[list[str], says("what is worth knowing")]
    problems: Annotated[list[str], says("what failed, each with its place")]
    seconds: Annotated[float, says("how long it took")]


class MaintenancePass(Document, frozen=True, kw_only=True):
    """One pass, step by step; the exit code is 1 if there are problems."""

    problems: Annotated[int, says("how many there are in all steps")]
    complete: Annotated[bool, says("false where a signal ended it early")]
    steps: list[MaintenanceStep]


class FsckReport(Report, kw_only=True):
    """Everything that was checked and found; docs/repair.md says more. Exit code 0: clean, 1: not, 2: could not run."""

    clean: Annotated[bool, says("whether nothing is wrong, or nothing is any more")]
    counts: Annotated[dict[str, int], says("how many findings there are, by severity")]


class VacuumFile(Item, frozen=True, kw_only=True):
    """A file that is not part of the log."""

    broker: Annotated[int, says("the broker that has it")]
    path: Annotated[str, says("its path below the broker's location")]
    size_bytes: Annotated[int, says("its size")]
    why: Annotated[str, says("why it is not part of the log")]


class VacuumResult(Document, frozen=True, kw_only=True):
    """What goes, or went with `--execute`; the exit code is 1 if there are problems."""

    dry_run: Annotated[bool, says("whether nothing was deleted")]
    fence: Annotated[int, says("writers that began at this version or before are told to write again")]
    files: Annotated[list[VacuumFile], says("all files that are not part of the log and never will be")]
    superseded: Annotated[list[VacuumFile], says("files that were part of the log")]
    left_alone: Annotated[list[VacuumFile], says("files that are left to other means")]
    younger: Annotated[int, says("files begun later, which may still become part of the log")]
    unfinished: Annotated[int, says("files that writers had not finished, which were deleted")]
    size_bytes: Annotated[int, says("bytes of `files` and `superseded`")]
    problems: Annotated[list[str], says("what failed")]


# -- measurements


class Latencies(Item, frozen=True, kw_only=True):
    """Milliseconds from `send` to the commit."""

    avg: Annotated[float, says("their mean")]
    max: Annotated[int, says("the longest")]
    p50: Annotated[int, says("half are not longer")]
    p95: Annotated[int, says("95 % are not")]
    p99: Annotated[int, says("99 % are not")]
    p999: Annotated[int, says("99.9 % are not")]


class SendingRate(Item, frozen=True, kw_only=True):
    """How fast records were sent."""

    records: Annotated[int, says("how many were sent")]
    size_bytes: Annotated[int, says("bytes of their values")]
    seconds: Annotated[float, says("how long it took")]
    records_per_second: Annotated[float, says("records by time")]
    mb_per_second: Annotated[float, says("MiB by time")]
    latency_ms: Latencies


Metrics = Annotated[
    dict[str, dict[str, float | None]] | None,
    says(
        "the client's metrics by group and name, with `--print-metrics`; null without; one that is not a number is null"
    ),
]


class ProducerPerformance(Document, frozen=True, kw_only=True):
    """A measurement. Lines of the reporting interval go to standard error."""

    total: SendingRate
    steady_state: Annotated[SendingRate | None, says("without the records of `--warmup-records`; null without that")]
    failed: Annotated[int, says("records that could not be sent")]
    metrics: Metrics


class ConsumerPerformance(Document, frozen=True, kw_only=True):
    """A measurement. Lines of the reporting interval go to standard error."""

    start_ms: Annotated[int, says("when it began, in ms since 1970")]
    end_ms: Annotated[int, says("when it ended")]
    records: Annotated[int, says("how many were read")]
    size_bytes: Annotated[int, says("bytes of their keys and values")]
    seconds: Annotated[float, says("how long it took")]
    records_per_second: Annotated[float, says("records by time")]
    mb_per_second: Annotated[float, says("MiB by time")]
    rebalance_ms: Annotated[int, says("how much of it the group's rebalances took")]
    fetch_ms: Annotated[int, says("the rest")]
    fetch_records_per_second: Annotated[float, says("records by the rest")]
    fetch_mb_per_second: Annotated[float, says("MiB by the rest")]
    metrics: Metrics


class EndToEndLatency(Document, frozen=True, kw_only=True):
    """A measurement. Lines about single records go to standard error; if no record was measured, nothing is printed."""

    records: Annotated[int, says("how many were sent and read back")]
    avg_ms: Annotated[float, says("the mean of their latencies in ms")]
    p50_ms: Annotated[int, says("half are not longer")]
    p99_ms: Annotated[int, says("99 % are not")]
    p999_ms: Annotated[int, says("99.9 % are not")]


DOCUMENTS: dict[str, type[Struct]] = {
    "topics --list": TopicNames,
    "topics --describe": TopicDescriptions,
    "configs --describe": ConfigDescriptions,
    "get-offsets": OffsetList,
    "consumer-groups --list": ConsumerGroupList,
    "consumer-groups --describe": ConsumerGroupDescriptions,
    "groups --list": GroupList,
    "transactions list": TransactionList,
    "transactions describe": TransactionDetails,
    "transactions describe-producers": ProducerList,
    "transactions find-hanging": HangingTransactions,
    "applications --list": ApplicationList,
    "brokers list": BrokerList,
    "cluster cluster-id": ClusterIdentity,
    "cluster list-endpoints": EndpointList,
    "cluster describe": ClusterDescription,
    "log-dirs --describe": LogDirDescription,
    "leader-election": ElectionResult,
    "reassign-partitions --list": ReassignmentList,
    "reassign-partitions --verify": ReassignmentVerification,
    "delete-records": RecordDeletion,
    "replica-verification": ReplicaVerification,
    "maintain --once": MaintenancePass,
    "maintain --loop": MaintenanceStep,
    "fsck": FsckReport,
    "vacuum": VacuumResult,
    "dump-log": DumpedLine,
    "producer-perf-test": ProducerPerformance,
    "consumer-perf-test": ConsumerPerformance,
    "e2e-latency": EndToEndLatency,
    "jobs": JobList,
}
"""The document of each command, in the order of docs/cli-json.md."""
