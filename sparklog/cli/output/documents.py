"""The documents that the commands print with ``--json``: one struct each, from which the tables are printed as well.

Rules: names are snake_case and Kafka's nouns, units last; a value that is unknown or does not apply is null. Later
versions may add fields, but never rename or remove one. ``log-dirs`` is the exception: its document is Kafka's, with
Kafka's names. The description of each field is its documentation (``json_reference`` generates docs/cli-json.md).

Not for: building a document (the commands) and printing it (``json_output``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct

from sparklog.maintenance.fsck.kinds import Finding, Report

if TYPE_CHECKING:
    from typing_extensions import Self


def says(description: str) -> Meta:
    """Describe a field for docs/cli-json.md."""
    return Meta(description=description)


class Document(Struct, frozen=True, kw_only=True):
    """What a command prints, or an object within."""

    @classmethod
    def of(cls, source: object, **fields: object) -> Self:
        """Return a document with these fields; the others are the attributes of ``source`` with their names."""
        copied = {name: getattr(source, name) for name in cls.__struct_fields__ if name not in fields}
        return cls(**copied, **fields)


# -- topics, configs


class TopicName(Document, frozen=True, kw_only=True):
    """A topic."""

    topic: Annotated[str, says("its name")]
    topic_id: Annotated[str, says("its id; that of `__consumer_offsets` is zeros")]
    internal: Annotated[bool, says("whether it is one of Kafka's internal topics")]


class TopicNames(Document, frozen=True, kw_only=True):
    """The topics, by name."""

    topics: list[TopicName]


class PartitionDetails(Document, frozen=True, kw_only=True):
    """A partition of a described topic."""

    partition: Annotated[int, says("its number")]
    leader: Annotated[int | None, says("the broker that leads it; null: it has no leader")]
    leader_epoch: Annotated[int, says("its leader epoch, which grows with each new leader")]
    replicas: Annotated[list[int], says("the brokers that hold it, the preferred leader first")]
    isr: Annotated[list[int], says("the replicas that are in sync")]
    adding_replicas: Annotated[list[int], says("the replicas that a reassignment adds")]
    removing_replicas: Annotated[list[int], says("the replicas that a reassignment removes")]


class TopicDetails(Document, frozen=True, kw_only=True):
    """A described topic."""

    topic: Annotated[str, says("its name")]
    topic_id: Annotated[str, says("its id")]
    partition_count: Annotated[int, says("number of partitions, including those not listed here")]
    replication_factor: Annotated[int, says("number of replicas of a partition, without those that are being added")]
    configs: Annotated[dict[str, str], says("its settings that differ from the default")]
    unfit_records: Annotated[
        int | None,
        says("number of records in its history that do not fit the schema; null: records are not compared with one"),
    ]
    partitions: Annotated[
        list[PartitionDetails],
        says(
            "its partitions; with `--under-replicated-partitions` and the other reports only those, and topics "
            "without such a partition are left out; with `--topics-with-overrides` none"
        ),
    ]


class TopicDescriptions(Document, frozen=True, kw_only=True):
    """The requested topics."""

    topics: list[TopicDetails]


class SynonymDetails(Document, frozen=True, kw_only=True):
    """A source that sets, or could set, the value of a setting."""

    source: Annotated[str, says("`DYNAMIC_TOPIC_CONFIG`, `DYNAMIC_DEFAULT_BROKER_CONFIG` or `DEFAULT_CONFIG`")]
    name: Annotated[str, says("the name of the setting there")]
    value: Annotated[str, says("its value there")]


class SettingDetails(Document, frozen=True, kw_only=True):
    """A setting of a topic or of the cluster."""

    name: Annotated[str, says("its name")]
    value: Annotated[str | None, says("its value; null: it has none")]
    source: Annotated[str, says("the source of the value, as in `synonyms`")]
    has_effect: Annotated[bool, says("whether it has an effect; if not, it is only stored and shown")]
    synonyms: Annotated[list[SynonymDetails], says("the possible sources of the value, the one in effect first")]


class EntityDetails(Document, frozen=True, kw_only=True):
    """A topic, a broker or the cluster with its settings."""

    type: Annotated[Literal["topics", "brokers"], says("what it is")]
    name: Annotated[str | None, says("the topic or the broker's id; null: the cluster's defaults")]
    configs: Annotated[list[SettingDetails], says("the settings that are set for it, or with `--all` all settings")]


class ConfigDescriptions(Document, frozen=True, kw_only=True):
    """The requested entities, each with its settings."""

    entities: list[EntityDetails]


# -- schemas


class SchemaDetails(Document, frozen=True, kw_only=True):
    """A schema of a topic."""

    topic: Annotated[str, says("the topic's name")]
    config: Annotated[str, says("the config that holds it: `value.schema` or `key.schema`")]
    versions: Annotated[int, says("number of its versions")]
    current_version: Annotated[int | None, says("the version that the config has now; null: the config is not set")]


class SchemaList(Document, frozen=True, kw_only=True):
    """The schemas of topics, by topic."""

    schemas: list[SchemaDetails]


class SchemaVersionDetails(Document, frozen=True, kw_only=True):
    """A version of a schema."""

    topic: Annotated[str, says("the topic's name")]
    config: Annotated[str, says("the config that holds the schema: `value.schema` or `key.schema`")]
    version: Annotated[int, says("its number, from 1")]
    is_current: Annotated[bool, says("whether the config has it now")]
    schema: Annotated[str, says("its text")]
    commit_version: Annotated[int, says("the commit that set it first")]
    timestamp_ms: Annotated[int, says("the time of that commit, in ms since 1970")]
    registry_ids: Annotated[list[int], says("its ids in schema registries")]


class SchemaDescriptions(Document, frozen=True, kw_only=True):
    """The requested versions of schemas, by topic and number."""

    schemas: list[SchemaVersionDetails]


# -- offsets, groups


class PartitionName(Document, frozen=True, kw_only=True):
    """A partition."""

    topic: Annotated[str, says("the topic")]
    partition: Annotated[int, says("the partition")]

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class PartitionOffset(PartitionName, frozen=True, kw_only=True):
    """An offset of a partition."""

    offset: Annotated[int | None, says("the offset; null: it has none, and no line without `--json`")]


class OffsetList(Document, frozen=True, kw_only=True):
    """The requested partitions, by topic and number."""

    offsets: list[PartitionOffset]


class GroupName(Document, frozen=True, kw_only=True):
    """A group."""

    group: Annotated[str, says("its id")]
    type: Annotated[str, says("its type: `Classic`")]
    protocol: Annotated[str, says("`consumer`, or empty if it has never had a member")]


class GroupList(Document, frozen=True, kw_only=True):
    """All groups, by id."""

    groups: list[GroupName]


class ConsumerGroupName(Document, frozen=True, kw_only=True):
    """A consumer group."""

    group: Annotated[str, says("its id")]
    type: Annotated[str, says("its type: `Classic`")]
    state: Annotated[str, says("its state: `Stable`, `Empty`, `PreparingRebalance` …")]


class ConsumerGroupList(Document, frozen=True, kw_only=True):
    """The consumer groups, by id."""

    groups: list[ConsumerGroupName]


class OffsetDetails(PartitionName, frozen=True, kw_only=True):
    """A group's offset and lag in a partition."""

    leader_epoch: Annotated[int | None, says("the leader epoch that was committed with the offset")]
    current_offset: Annotated[int | None, says("the committed offset; null: none")]
    log_end_offset: Annotated[int, says("the log end offset of the partition")]
    lag: Annotated[int | None, says("the difference between the two")]
    consumer_id: Annotated[str | None, says("the member that holds the partition; null: none")]
    host: Annotated[str | None, says("the host of that member")]
    client_id: Annotated[str | None, says("its client id")]


class MemberDetails(Document, frozen=True, kw_only=True):
    """A member of a group."""

    consumer_id: Annotated[str, says("its id")]
    group_instance_id: Annotated[str | None, says("its `group.instance.id`; null: it has none")]
    host: Annotated[str | None, says("its host")]
    client_id: Annotated[str | None, says("its client id")]
    assignment: Annotated[list[PartitionName], says("its current partitions, including those it is to revoke")]
    target_assignment: Annotated[list[PartitionName], says("the partitions assigned to it")]


class ConsumerGroupDetails(ConsumerGroupName, frozen=True, kw_only=True):
    """A described consumer group."""

    assignor: Annotated[str | None, says("the assignor that its members agreed on; null: none")]
    generation: Annotated[int, says("its generation, which grows with each rebalance")]
    member_count: Annotated[int, says("number of members")]
    offsets: Annotated[list[OffsetDetails] | None, says("its offsets; null with `--members` and `--state`")]
    members: Annotated[list[MemberDetails] | None, says("its members; null without `--members`")]


class ConsumerGroupDescriptions(Document, frozen=True, kw_only=True):
    """The requested groups; one that does not exist is left out, reported on standard error, and makes the exit code
    1."""

    groups: list[ConsumerGroupDetails]


# -- transactions, applications


class TransactionName(Document, frozen=True, kw_only=True):
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


class ProducerDetails(Document, frozen=True, kw_only=True):
    """A producer of a partition."""

    producer_id: Annotated[int, says("its id")]
    producer_epoch: Annotated[int, says("its epoch")]
    last_sequence: Annotated[int | None, says("the sequence number of its last record; null: not known")]
    last_timestamp: Annotated[int, says("when it last wrote, in ms since 1970")]


class ProducerList(PartitionName, frozen=True, kw_only=True):
    """The producers of a partition."""

    producers: list[ProducerDetails]


class HangingTransactions(TransactionList, frozen=True, kw_only=True):
    """The hanging transactions: always none, since a transaction is one commit."""


class ApplicationDetails(Document, frozen=True, kw_only=True):
    """An application whose newest write number is remembered."""

    application: Annotated[str, says("its `txnAppId`, or a streaming query's id")]
    version: Annotated[int, says("the number of its newest write")]
    commit_version: Annotated[int, says("the commit of that write")]


class ApplicationList(Document, frozen=True, kw_only=True):
    """The applications, by id."""

    applications: list[ApplicationDetails]


# -- brokers, cluster


class BrokerDetails(Document, frozen=True, kw_only=True):
    """A broker, which is a storage location."""

    broker: Annotated[int, says("its id")]
    state: Annotated[
        Literal["online", "unreachable", "offline"],
        says(
            "`online`: it answered; `unreachable`: it did not answer, but is not marked offline yet; "
            "`offline`: the controller marked it offline"
        ),
    ]
    cordoned: Annotated[bool, says("whether it gets no new replicas")]
    last_seen_ms: Annotated[
        int | None, says("when it last answered, in ms since 1970: now, or at its latest check; null: not known")
    ]
    problem: Annotated[str | None, says("why it is unreachable")]
    replicas: Annotated[int, says("number of replicas that it holds")]
    out_of_sync: Annotated[int, says("number of its replicas that are not in sync")]
    leaders: Annotated[int, says("number of partitions that it leads")]
    size_bytes: Annotated[int, says("bytes of the live segments of its replicas in sync")]
    location: Annotated[str, says("its location: a path or URL")]


class BrokerList(Document, frozen=True, kw_only=True):
    """The brokers, by id."""

    brokers: list[BrokerDetails]


class ClusterIdentity(Document, frozen=True, kw_only=True):
    """The id of the cluster."""

    cluster_id: Annotated[str, says("its id")]


class FeatureDetails(Document, frozen=True, kw_only=True):
    """A feature of the cluster."""

    feature: Annotated[str, says("its name; there is only `metadata.version`, the level of all stored formats")]
    supported_min_version: Annotated[int, says("the oldest level that this version of sparklog writes")]
    supported_max_version: Annotated[int, says("the newest level that it knows")]
    finalized_version_level: Annotated[int, says("the cluster's level")]
    epoch: Annotated[int, says("the version of the commit log at which that was read")]


class FeatureList(Document, frozen=True, kw_only=True):
    """The features of the cluster."""

    features: list[FeatureDetails]


class Endpoint(Document, frozen=True, kw_only=True):
    """The location of a broker."""

    id: Annotated[int, says("the broker's id")]
    host: Annotated[str, says("its location: a path or URL")]
    port: Annotated[int, says("-1: a location has no port")]
    rack: Annotated[str | None, says("null: there are no racks")]
    state: Annotated[
        Literal["unfenced", "fenced"], says("`fenced`: the controller marked it offline, or it did not answer")
    ]
    endpoint_type: Annotated[Literal["broker"], says("the type of the endpoint")]


class EndpointList(Document, frozen=True, kw_only=True):
    """The brokers' locations, by id."""

    endpoints: list[Endpoint]


class ClusterBroker(Document, frozen=True, kw_only=True):
    """A broker of a described cluster."""

    broker: Annotated[int, says("its id")]
    location: Annotated[str, says("its location: a path or URL")]
    online: Annotated[bool, says("whether the controller has not marked it offline")]
    state: Annotated[Literal["online", "unreachable", "offline"], says("its state now, as in `brokers list`")]
    cordoned: Annotated[bool, says("whether it gets no new replicas")]


class ClusterTopic(Document, frozen=True, kw_only=True):
    """A topic of a described cluster."""

    topic: Annotated[str, says("its name")]
    partitions: Annotated[int, says("number of partitions")]
    segments: Annotated[int, says("number of segments")]
    records: Annotated[int, says("number of offsets that can be read")]
    size_bytes: Annotated[int, says("bytes of its live segments")]


class ClusterDescription(Document, frozen=True, kw_only=True):
    """The cluster."""

    cluster_id: Annotated[str, says("its id")]
    root: Annotated[str, says("its root: a path or URL")]
    level: Annotated[int, says("the version of all stored formats together")]
    needs_version: Annotated[str, says("the oldest version of sparklog that supports this level")]
    version: Annotated[int, says("the number of its newest commit")]
    timestamp_ms: Annotated[int, says("the time of that commit, in ms since 1970")]
    boundary: Annotated[int | None, says("commits up to this one may be removed; null: all are kept")]
    checkpoint: Annotated[int | None, says("the newest checkpoint's version; null: none yet")]
    controller: Annotated[str | None, says("the controller's name; null: none yet")]
    controller_epoch: Annotated[int, says("the controller epoch, which grows with each new controller")]
    removed_files: Annotated[int, says("number of retired files that are not deleted yet")]
    removed_bytes: Annotated[int, says("bytes of these files")]
    brokers: list[ClusterBroker]
    topics: list[ClusterTopic]


class LogDirPartition(Document, frozen=True, kw_only=True, rename="camel"):
    """A replica in a log dir; Kafka's names."""

    partition: Annotated[str, says("topic and number, as `orders-0`")]
    size: Annotated[int, says("bytes of its live segments")]
    offset_lag: Annotated[int, says("0 in sync, else -1")]
    is_future: Annotated[bool, says("whether a reassignment is adding it")]


class LogDir(Document, frozen=True, kw_only=True, rename="camel"):
    """The only log dir of a broker; Kafka's names."""

    log_dir: Annotated[str, says("the broker's location")]
    error: Annotated[str | None, says("Kafka's error class, if the location is offline or did not answer")]
    partitions: Annotated[list[LogDirPartition], says("the replicas there; none with an error")]


class LogDirBroker(Document, frozen=True, kw_only=True, rename="camel"):
    """A broker with its log dir; Kafka's names."""

    broker: Annotated[int, says("its id")]
    log_dirs: list[LogDir]


class LogDirDescription(Document, frozen=True, kw_only=True, rename="camel"):
    """Kafka's document, which is printed without `--json` as well, after two lines of text."""

    version: Annotated[int, says("1")]
    brokers: list[LogDirBroker]


# -- replicas


class ElectionOutcome(PartitionName, frozen=True, kw_only=True):
    """The outcome of an election."""

    outcome: Annotated[
        Literal["elected", "not-needed", "failed"], says("`not-needed`: the partition already has the right leader")
    ]
    error: Annotated[str | None, says("why it failed")]


class ElectionResult(Document, frozen=True, kw_only=True):
    """The requested elections; the exit code is 1 if any failed."""

    election_type: Annotated[Literal["PREFERRED", "UNCLEAN"], says("the requested type")]
    partitions: list[ElectionOutcome]


class ReassignmentDetails(PartitionName, frozen=True, kw_only=True):
    """A partition whose replicas are being reassigned."""

    replicas: Annotated[list[int], says("its replicas, including those being added")]
    adding_replicas: Annotated[list[int], says("the replicas being added")]
    removing_replicas: Annotated[list[int], says("the replicas being removed")]


class ReassignmentList(Document, frozen=True, kw_only=True):
    """The reassignments in progress."""

    reassignments: list[ReassignmentDetails]


class ReassignmentStatus(PartitionName, frozen=True, kw_only=True):
    """The progress of a reassignment."""

    state: Annotated[
        Literal["completed", "in-progress", "differs"],
        says("`differs`: no reassignment is in progress, and the replicas are not those of the file"),
    ]
    replicas: Annotated[list[int], says("its current replicas; empty if the partition does not exist")]
    wanted_replicas: Annotated[list[int], says("its replicas in the file")]


class ReassignmentVerification(Document, frozen=True, kw_only=True):
    """The partitions of the file. As without `--json`, the throttle is lifted if no reassignment is in progress."""

    partitions: list[ReassignmentStatus]
    throttles_cleared: Annotated[bool, says("whether the throttle was lifted")]


class DeletedRecords(PartitionName, frozen=True, kw_only=True):
    """The outcome for a partition."""

    low_watermark: Annotated[int | None, says("its new log start offset; null: nothing was deleted")]
    error: Annotated[str | None, says("why nothing was deleted")]


class RecordDeletion(Document, frozen=True, kw_only=True):
    """The partitions of the file, in its order."""

    partitions: list[DeletedRecords]


class ReplicaLag(PartitionName, frozen=True, kw_only=True):
    """The largest lag of the replicas of a partition."""

    lag: Annotated[int, says("number of records that the replica lacks at the end")]
    offset: Annotated[int, says("the offset up to which the replica is complete")]


class ReplicaVerification(Document, frozen=True, kw_only=True):
    """The result of reading all replicas in sync; the exit code is 1 if there are differences."""

    differences: Annotated[list[Finding], says("damaged copies, and differences between sound ones, as in `fsck`")]
    partitions: list[ReplicaLag]


# -- maintenance


class MaintenanceStep(Document, frozen=True, kw_only=True):
    """The result of a step. `maintain --loop --json` prints one per line, for each step with something to report."""

    step: Annotated[str, says("its name")]
    counts: Annotated[dict[str, int], says("what it did, and how often; bytes if the name says so")]
    notes: Annotated[list[str], says("remarks for the operator")]
    problems: Annotated[list[str], says("its failures, each with what failed and where")]
    seconds: Annotated[float, says("its duration")]


class MaintenancePass(Document, frozen=True, kw_only=True):
    """A pass, step by step; the exit code is 1 if there are problems."""

    problems: Annotated[int, says("number of problems in all steps")]
    complete: Annotated[bool, says("false if a signal ended it early")]
    steps: list[MaintenanceStep]


class FsckReport(Report, kw_only=True):
    """The findings and what was checked; see docs/repair.md. Exit code 0: clean, 1: not clean, 2: could not run."""

    clean: Annotated[bool, says("whether no finding remains")]
    counts: Annotated[dict[str, int], says("number of findings by severity")]


class VacuumFile(Document, frozen=True, kw_only=True):
    """A file that is not part of the log."""

    broker: Annotated[int, says("the broker that has it")]
    path: Annotated[str, says("its path below the broker's location")]
    size_bytes: Annotated[int, says("its size")]
    why: Annotated[str, says("why it is not part of the log")]


class VacuumResult(Document, frozen=True, kw_only=True):
    """The files to delete, or deleted with `--execute`; the exit code is 1 if there are problems."""

    dry_run: Annotated[bool, says("whether nothing was deleted")]
    fence: Annotated[int, says("writers that began at this version or before are fenced and have to write again")]
    files: Annotated[list[VacuumFile], says("orphans: files that are not part of the log and never will be")]
    superseded: Annotated[list[VacuumFile], says("files that are no longer part of the log")]
    left_alone: Annotated[list[VacuumFile], says("files that vacuum does not delete")]
    younger: Annotated[int, says("number of files begun later, which may still become part of the log")]
    unfinished: Annotated[int, says("number of incompletely written files that were deleted")]
    size_bytes: Annotated[int, says("bytes of `files` and `superseded`")]
    problems: Annotated[list[str], says("what failed")]


# -- system tables


class SystemTableName(Document, frozen=True, kw_only=True):
    """A system table."""

    table: Annotated[str, says("its name")]
    rows: Annotated[str, says("what a row of it is")]


class SystemTableList(Document, frozen=True, kw_only=True):
    """The system tables."""

    tables: list[SystemTableName]


class SystemTableColumn(Document, frozen=True, kw_only=True):
    """A column of a system table."""

    column: Annotated[str, says("its name")]
    type: Annotated[str, says("its type in Arrow; a `timestamp` is a number of ms since 1970 in JSON")]


class SystemTableDescription(SystemTableName, frozen=True, kw_only=True):
    """A system table with its columns."""

    columns: list[SystemTableColumn]


class SystemTableRows(Document, frozen=True, kw_only=True):
    """Rows of a system table; their fields are its columns (docs/monitoring.md)."""

    table: Annotated[str, says("its name")]
    rows: Annotated[
        list[dict[str, str | int | float | bool | list[str | int] | dict[str, str] | None]],
        says("the rows, oldest commit first; times are ms since 1970"),
    ]


# -- measurements


class Latencies(Document, frozen=True, kw_only=True):
    """Milliseconds from `send` to the commit."""

    avg: Annotated[float, says("the mean")]
    max: Annotated[int, says("the maximum")]
    p50: Annotated[int, says("the 50th percentile")]
    p95: Annotated[int, says("the 95th percentile")]
    p99: Annotated[int, says("the 99th percentile")]
    p999: Annotated[int, says("the 99.9th percentile")]


class SendingRate(Document, frozen=True, kw_only=True):
    """The throughput and latencies of sent records."""

    records: Annotated[int, says("number of records sent")]
    size_bytes: Annotated[int, says("bytes of their values")]
    seconds: Annotated[float, says("the duration")]
    records_per_second: Annotated[float, says("records per second")]
    mb_per_second: Annotated[float, says("MiB per second")]
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
    steady_state: Annotated[SendingRate | None, says("without the first `--warmup-records`; null without this option")]
    failed: Annotated[int, says("number of records that could not be sent")]
    metrics: Metrics


class ConsumerPerformance(Document, frozen=True, kw_only=True):
    """A measurement. Lines of the reporting interval go to standard error."""

    start_ms: Annotated[int, says("when it began, in ms since 1970")]
    end_ms: Annotated[int, says("when it ended, in ms since 1970")]
    records: Annotated[int, says("number of records read")]
    size_bytes: Annotated[int, says("bytes of their keys and values")]
    seconds: Annotated[float, says("the duration")]
    records_per_second: Annotated[float, says("records per second")]
    mb_per_second: Annotated[float, says("MiB per second")]
    rebalance_ms: Annotated[int, says("time of the group's rebalances")]
    fetch_ms: Annotated[int, says("the duration without the rebalances")]
    fetch_records_per_second: Annotated[float, says("records per second of `fetch_ms`")]
    fetch_mb_per_second: Annotated[float, says("MiB per second of `fetch_ms`")]
    metrics: Metrics


class EndToEndLatency(Document, frozen=True, kw_only=True):
    """A measurement. Lines about single records go to standard error; if no record was measured, nothing is printed."""

    records: Annotated[int, says("number of records sent and read back")]
    avg_ms: Annotated[float, says("the mean of their latencies in ms")]
    p50_ms: Annotated[int, says("the 50th percentile")]
    p99_ms: Annotated[int, says("the 99th percentile")]
    p999_ms: Annotated[int, says("the 99.9th percentile")]


# -- dump-log, one object per line, so that memory holds at most one batch; jobs


class DumpedRun(Document, frozen=True, kw_only=True):
    """A run of the file's batches that the commit log names."""

    topic: Annotated[str, says("the topic")]
    partition: Annotated[int, says("the partition")]
    base_offset: Annotated[int, says("its first offset")]
    end_offset: Annotated[int, says("the offset after its last one")]
    records: Annotated[int, says("number of records; fewer than offsets if compaction removed some")]
    first_batch: Annotated[int, says("the number of its first batch in the file, from 0")]
    batches: Annotated[int, says("number of batches")]
    commit_version: Annotated[int, says("the commit that names it")]


class DumpedStart(Document, frozen=True, kw_only=True):
    """What is known about a file before its contents are read."""

    base_offset: Annotated[int, says("the offset in its name, which its writer expected")]
    runs: Annotated[
        list[DumpedRun] | None,
        says("with `--bootstrap-server`: its runs in the commit log; empty: no commit names it; null: not looked up"),
    ]
    index_fault: Annotated[str | None, says("the fault of the `.index`, or that it is missing")]


class DumpedRecord(Document, frozen=True, kw_only=True):
    """A record."""

    offset: Annotated[int, says("its offset")]
    timestamp_ms: Annotated[int, says("its time, in ms since 1970, of its batch's `timestamp_type`")]
    key_size: Annotated[int | None, says("bytes of its key; null: it has none")]
    value_size: Annotated[int | None, says("bytes of its value; null: it has none")]
    sequence: Annotated[int | None, says("its sequence number; null: its producer set none")]
    header_keys: Annotated[list[str], says("the keys of its headers, in their order")]
    key: Annotated[
        str | None, says("its key as decoded by `--key-decoder-class`; null: none, or contents were not requested")
    ]
    value: Annotated[str | None, says("its value, likewise")]


class DumpedBatch(Document, frozen=True, kw_only=True):
    """A batch of a `.log`."""

    base_offset: Annotated[int, says("its first offset")]
    last_offset: Annotated[int | None, says("its last offset; null: not known")]
    count: Annotated[int | None, says("number of records; null: not known")]
    base_sequence: Annotated[int | None, says("the sequence number of its first record; null: none")]
    last_sequence: Annotated[int | None, says("that of its last record; null: none")]
    producer_id: Annotated[int | None, says("its producer; null: none, or not known")]
    producer_epoch: Annotated[int | None, says("the producer's epoch")]
    leader_epoch: Annotated[int, says("the leader epoch of its partition; 0 unless the commit log was read")]
    delete_horizon_ms: Annotated[int | None, says("when compaction may drop its tombstones; null: not set")]
    position: Annotated[int, says("its position in the file, in bytes")]
    size_bytes: Annotated[int, says("its size in the file")]
    timestamp_type: Annotated[Literal["CreateTime", "LogAppendTime"], says("the type of its records' timestamps")]
    max_timestamp_ms: Annotated[int | None, says("its newest timestamp, in ms since 1970; null: not known")]
    magic: Annotated[int, says("the version of sparklog's format")]
    codec: Annotated[str, says("its compression: `none`, `gzip`, `snappy`, `lz4` or `zstd`")]
    crc: Annotated[int, says("the CRC32C of the whole message")]
    fault: Annotated[str | None, says("what is wrong with it; null: no fault was found")]
    records: Annotated[
        list[DumpedRecord] | None, says("with `--deep-iteration` or `--print-data-log`; null without, or with a fault")
    ]


class DumpedEntry(Document, frozen=True, kw_only=True):
    """An entry of an `.index`."""

    offset: Annotated[int, says("the first offset of a batch")]
    position: Annotated[int, says("the position of that batch in the `.log`, in bytes")]


class DumpedMismatch(Document, frozen=True, kw_only=True):
    """A difference between the `.index` and the `.log` in the entry of a batch."""

    batch: Annotated[int, says("the batch's number in the file, from 0")]
    what: Annotated[Literal["offset", "position", "size", "crc", "timestamp"], says("what differs")]
    index: Annotated[int | None, says("the value in the `.index`; null: none")]
    log: Annotated[int | None, says("the value in the `.log`; null: none")]


class DumpedEnd(Document, frozen=True, kw_only=True):
    """The result of reading a file."""

    sound: Annotated[bool, says("whether no fault was found; if any file is not sound, the exit code is 1")]
    complete: Annotated[bool, says("false if `--max-bytes` ended the reading, and the rest was not read")]
    mismatches: Annotated[list[DumpedMismatch], says("of an `.index`: its differences from the `.log`")]
    fault: Annotated[str | None, says("a fault outside the batches")]
    trailing_bytes: Annotated[int, says("bytes at the end that belong to no batch")]


class DumpedLine(Document, frozen=True, kw_only=True):
    """One of many lines, each an object of this type: for each file a `start`, then a `batch` for each batch of a
    `.log`, or an `entry` for each entry of an `.index`, then the `end`. The other three fields are null. A file without
    an `end` could not be read completely; the error is on standard error. Other kinds of files have no lines."""

    file: Annotated[str, says("the file, as `--files` names it")]
    start: DumpedStart | None = None
    batch: DumpedBatch | None = None
    entry: DumpedEntry | None = None
    end: DumpedEnd | None = None


class TopicRates(Document, frozen=True, kw_only=True):
    """What is added to a topic."""

    topic: Annotated[str, says("its name")]
    records_per_second: Annotated[float, says("records that are added per second")]
    bytes_per_second: Annotated[float, says("their bytes")]
    appends_per_second: Annotated[float, says("appends per second, each to one partition")]
    partitions: Annotated[int, says("number of partitions")]
    records: Annotated[int, says("offsets from the log start to the log end of all partitions")]
    size_bytes: Annotated[int, says("bytes of its live segments")]


class GroupRates(Document, frozen=True, kw_only=True):
    """How far a group is behind."""

    group: Annotated[str, says("its id")]
    state: Annotated[str, says("its state, as `consumer-groups --describe --state` prints it")]
    members: Annotated[int, says("number of members")]
    lag: Annotated[int, says("number of unread records in all partitions")]
    lag_seconds: Annotated[
        float | None, says("age of the oldest unread record, counted from its commit; null: that commit was removed")
    ]
    commits_per_second: Annotated[float, says("commits of offsets per second")]


class ActivityReport(Document, frozen=True, kw_only=True):
    """What happens in the cluster; rates are those of the last `window_seconds`."""

    time_ms: Annotated[int, says("when it was looked at, in ms since 1970")]
    version: Annotated[int, says("version of the cluster")]
    window_seconds: Annotated[float, says("the time of which the rates are")]
    commits_per_second: Annotated[float, says("commits of the cluster per second")]
    topics: list[TopicRates]
    groups: list[GroupRates]


class AlertDetails(Document, frozen=True, kw_only=True):
    """An alert that is pending or firing."""

    rule: Annotated[str, says("the name of its rule")]
    kind: Annotated[str, says("the kind of its rule, which says what is measured")]
    severity: Annotated[Literal["info", "warning", "critical"], says("the severity of its rule")]
    status: Annotated[Literal["pending", "firing"], says("pending: not above the threshold for long enough yet")]
    subject: Annotated[dict[str, str], says("what it is about, such as `group` and `topic`; empty: the cluster")]
    value: Annotated[float, says("what was measured")]
    above: Annotated[float, says("the threshold of its rule")]
    unit: Annotated[Literal["seconds", "bytes", "count"], says("the unit of `value` and `above`")]
    since_ms: Annotated[int, says("when the value passed the threshold, in ms since 1970")]
    summary: Annotated[str, says("the same in words")]


class AlertChange(Document, frozen=True, kw_only=True):
    """An alert that began to fire, or resolved."""

    rule: Annotated[str, says("the name of its rule")]
    status: Annotated[Literal["firing", "resolved"], says("what it is from now on")]
    subject: Annotated[dict[str, str], says("what it is about, such as `group` and `topic`; empty: the cluster")]
    value: Annotated[float, says("what was measured last while it fired")]
    since_ms: Annotated[int, says("when the value passed the threshold, in ms since 1970")]
    time_ms: Annotated[int, says("the time of the evaluation")]
    summary: Annotated[str, says("the same in words")]


class AlertReport(Document, frozen=True, kw_only=True):
    """An evaluation of rules. The exit code of `--once` is 2 if anything fires, and 1 if there are problems."""

    cluster_id: Annotated[str, says("the id of the cluster")]
    time_ms: Annotated[int, says("the time of the evaluation, in ms since 1970")]
    rules: Annotated[int, says("number of rules")]
    firing: Annotated[int, says("number of alerts that fire")]
    alerts: list[AlertDetails]
    changes: list[AlertChange]
    problems: Annotated[list[str], says("rules that could not be evaluated, and channels that were not told")]


class JobFile(Document, frozen=True, kw_only=True):
    """A program for spark-submit."""

    name: Annotated[str, says("its name, as in `python -m sparklog.jobs.NAME`")]
    path: Annotated[str, says("the file that spark-submit takes")]
    description: Annotated[str, says("what it does, in one sentence")]


class JobList(Document, frozen=True, kw_only=True):
    """The programs for spark-submit that are installed with sparklog, by name."""

    jobs: list[JobFile]
    conf: Annotated[str, says("the folder with Spark settings")]


DOCUMENTS: dict[str, type[Struct]] = {
    "topics --list": TopicNames,
    "topics --describe": TopicDescriptions,
    "configs --describe": ConfigDescriptions,
    "schemas --list": SchemaList,
    "schemas --describe": SchemaDescriptions,
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
    "features describe": FeatureList,
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
    "alerts": AlertReport,
    "top": ActivityReport,
    "fsck": FsckReport,
    "vacuum": VacuumResult,
    "system": SystemTableRows,
    "system --list": SystemTableList,
    "system --describe": SystemTableDescription,
    "dump-log": DumpedLine,
    "producer-perf-test": ProducerPerformance,
    "consumer-perf-test": ConsumerPerformance,
    "e2e-latency": EndToEndLatency,
    "jobs": JobList,
}
"""The document of each command, in the order of docs/cli-json.md."""
