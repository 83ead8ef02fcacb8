"""kafka-consumer-groups, kafka-groups, kafka-transactions and the others, and sparklog's commands of those names."""

from __future__ import annotations

from tests.differential.cases import Line, only, piped, says, tools

MADE = "~topics --create --topic $T"
FILL = piped("~console-producer --topic $T", b"0\n1\n2\n3\n4\n")
COMMIT = "~console-consumer --topic $T --group $G --from-beginning --max-messages 3 --timeout-ms 8000"
GROUP = (MADE, FILL, COMMIT)
"""Command lines that create a topic of five records, and a group without members that has committed 3."""
NOBODY = "nobody-$T"

# -- list, describe, delete

tools("groups-list", *GROUP, only("consumer-groups --list", "$G"))
tools(
    "groups-list-state",
    *GROUP,
    only("consumer-groups --list --state", "$G"),
    only("consumer-groups --list --state empty", "$G"),
    only("consumer-groups --list --state Stable", "$G"),
)
tools("groups-list-wrong-state", says("consumer-groups --list --state tired", "tired"))
tools(
    "groups-list-type",
    *GROUP,
    only("consumer-groups --list --type", "$G"),
    only("consumer-groups --list --type classic", "$G"),
)
tools("groups-list-wrong-type", says("consumer-groups --list --type modern", "modern"))
tools("groups-describe", *GROUP, "consumer-groups --describe --group $G")
tools("groups-describe-offsets", *GROUP, "consumer-groups --describe --group $G --offsets")
tools("groups-describe-verbose", *GROUP, "consumer-groups --describe --group $G --verbose")
tools("groups-describe-state", *GROUP, "consumer-groups --describe --group $G --state")
tools("groups-describe-members", *GROUP, "consumer-groups --describe --group $G --members")
tools("groups-describe-members-verbose", *GROUP, "consumer-groups --describe --group $G --members --verbose")
tools("groups-describe-unknown", says(f"consumer-groups --describe --group {NOBODY}", "not found"))
tools("groups-describe-unknown-state", says(f"consumer-groups --describe --group {NOBODY} --state", "not found"))
tools("groups-describe-two", *GROUP, "consumer-groups --describe --group $G --group $G")
tools("groups-describe-nothing", says("consumer-groups --describe", "group"))
tools("groups-describe-two-views", *GROUP, says("consumer-groups --describe --group $G --members --state", "members"))
tools("groups-delete", *GROUP, "consumer-groups --delete --group $G", only("consumer-groups --list", "$G"))
tools("groups-delete-unknown", says(f"consumer-groups --delete --group {NOBODY}", "could not be deleted"))
tools("groups-delete-topic", *GROUP, says("consumer-groups --delete --group $G --topic $T", "topic"))
tools("groups-delete-nothing", says("consumer-groups --delete", "group"))
tools("groups-no-action", says("consumer-groups", "--list"))
tools("groups-two-actions", says("consumer-groups --list --describe --group $G"))
tools("groups-unknown-flag", says("consumer-groups --nope", "nope"))
tools("groups-timeout-text", says("consumer-groups --list --timeout soon", "soon"))
tools("groups-validate-regex", "consumer-groups --validate-regex 'a.*'")
tools("groups-validate-bad-regex", says("consumer-groups --validate-regex '['", "["))
tools(
    "groups-delete-offsets",
    *GROUP,
    "consumer-groups --delete-offsets --group $G --topic $T",
    "consumer-groups --describe --group $G",
)
tools("groups-delete-offsets-of-partition", *GROUP, "consumer-groups --delete-offsets --group $G --topic $T:0")
tools(
    "groups-delete-offsets-unknown-group",
    says(f"consumer-groups --delete-offsets --group {NOBODY} --topic $T", "group"),
)
tools(
    "groups-delete-offsets-unknown-topic",
    *GROUP,
    says(f"consumer-groups --delete-offsets --group $G --topic {NOBODY}", "unknown"),
)
tools("groups-delete-offsets-without-topic", *GROUP, says("consumer-groups --delete-offsets --group $G", "topic"))

# -- reset-offsets


def reset(name: str, flags: str, *words: str, files: dict[str, str] | None = None) -> None:
    line = f"consumer-groups --reset-offsets --group $G {flags}"
    asked: str | Line = says(line, *words) if words else line
    tools(f"reset-{name}", *GROUP, asked, only("consumer-groups --describe --group $G"), files=files)


reset("earliest", "--topic $T --to-earliest --execute")
reset("latest", "--topic $T --to-latest --execute")
reset("current", "--topic $T --to-current --execute")
reset("offset", "--topic $T --to-offset 1 --execute")
reset("offset-beyond", "--topic $T --to-offset 99 --execute")
reset("offset-negative", "--topic $T --to-offset -1 --execute")
reset("offset-text", "--topic $T --to-offset one --execute", "one")
reset("shift-back", "--topic $T --shift-by -2 --execute")
reset("shift-forward", "--topic $T --shift-by 1 --execute")
reset("shift-too-far", "--topic $T --shift-by 99 --execute")
reset("shift-too-far-back", "--topic $T --shift-by -99 --execute")
reset("datetime", "--topic $T --to-datetime 2020-01-01T00:00:00.000 --execute")
reset("datetime-future", "--topic $T --to-datetime 2199-01-01T00:00:00.000 --execute")
reset("datetime-zone", "--topic $T --to-datetime 2020-01-01T00:00:00.000+01:00 --execute")
reset("datetime-wrong", "--topic $T --to-datetime yesterday --execute", "yesterday")
reset("datetime-without-millis", "--topic $T --to-datetime 2020-01-01T00:00:00 --execute")
reset("duration", "--topic $T --by-duration P1D --execute")
reset("duration-wrong", "--topic $T --by-duration 1day --execute", "1day")
reset("partition", "--topic $T:0 --to-earliest --execute")
reset("partition-unknown", "--topic $T:7 --to-earliest --execute", "partition")
reset("partition-text", "--topic $T:a --to-earliest --execute", "a")
reset("all-topics", "--all-topics --to-earliest --execute")
reset("dry-run", "--topic $T --to-earliest --dry-run")
reset("neither", "--topic $T --to-earliest", "--execute")
reset("both", "--topic $T --to-earliest --dry-run --execute", "execute")
reset("two-scenarios", "--topic $T --to-earliest --to-latest --execute", "to-latest")
reset("no-scenario", "--topic $T --execute", "to-earliest")
reset("no-scope", "--to-earliest --execute", "topic")
reset("unknown-topic", "--topic none-$T --to-earliest --execute", "none-$T")
reset("export", "--topic $T --to-offset 1 --export --dry-run")
reset("export-execute", "--topic $T --to-current --export --execute")
reset("from-file", "--from-file $D/o.csv --execute", files={"o.csv": "$T,0,2\n"})
reset("from-file-with-group", "--from-file $D/o.csv --execute", files={"o.csv": "$G,$T,0,2\n"})
reset("from-file-wrong", "--from-file $D/o.csv --execute", "o.csv", files={"o.csv": "$T;0;2\n"})
reset("from-missing-file", "--from-file $D/none.csv --execute", "none.csv")
tools(
    "reset-new-group",
    MADE,
    FILL,
    "consumer-groups --reset-offsets --group $G --topic $T --to-offset 2 --execute",
    "consumer-groups --describe --group $G",
)
tools("reset-without-group", says("consumer-groups --reset-offsets --topic $T --to-earliest --execute", "group"))

# -- groups

tools("kafka-groups-list", *GROUP, only("groups --list", "$G"))
tools("kafka-groups-consumer", *GROUP, only("groups --list --consumer", "$G"))
tools(
    "kafka-groups-type",
    *GROUP,
    only("groups --list --group-type classic", "$G"),
    only("groups --list --group-type share", "$G"),
)
tools("kafka-groups-wrong-type", says("groups --list --group-type modern", "modern"))
tools(
    "kafka-groups-protocol",
    *GROUP,
    only("groups --list --protocol consumer", "$G"),
    only("groups --list --protocol other", "$G"),
)
tools("kafka-groups-no-action", says("groups", "list"))

# -- the others

tools("transactions-list", only("transactions list", "TransactionalId"))
tools("transactions-describe-unknown", says("transactions describe --transactional-id nobody", "nobody"))
tools("transactions-describe-nothing", says("transactions describe", "transactional-id"))
tools("transactions-no-command", says("transactions"))
tools("transactions-unknown-command", says("transactions undo", "undo"))
tools(
    "transactions-producers", MADE, FILL, says("transactions describe-producers --topic $T --partition 0", "ProducerId")
)
tools("transactions-hanging", only("transactions find-hanging --broker-id 0", "Topic"))
tools(
    "leader-election-preferred",
    MADE,
    says("leader-election --election-type preferred --topic $T --partition 0", "already elected"),
)
tools("leader-election-wrong-type", MADE, says("leader-election --election-type fair --topic $T --partition 0", "fair"))
tools("leader-election-no-type", MADE, says("leader-election --topic $T --partition 0", "election-type"))
tools("leader-election-no-partition", MADE, says("leader-election --election-type preferred --topic $T", "partition"))
tools("leader-election-unknown", says("leader-election --election-type preferred --topic $T --partition 0", "error"))
tools("log-dirs", MADE, says("log-dirs --describe --topic-list $T", '"version":1', '"partition":'))
tools("log-dirs-no-action", says("log-dirs", "describe"))
tools("log-dirs-unknown-broker", says("log-dirs --describe --broker-list 77", "77"))
MOVE = '{"version": 1, "partitions": [{"topic": "$T", "partition": 0, "replicas": [%s]}]}'
tools("reassign-list", says("reassign-partitions --list", "No partition reassignments found"))
tools(
    "reassign-execute-same",
    MADE,
    says(
        "reassign-partitions --reassignment-json-file $D/m.json --execute",
        "Save this to use as the --reassignment-json-file $D/option during rollback",
        "Successfully started partition reassignment",
    ),
    files={"m.json": MOVE % 0},
)
tools(
    "reassign-verify",
    MADE,
    says(
        "reassign-partitions --reassignment-json-file $D/m.json --verify",
        "Status of partition reassignment",
        "is completed",
    ),
    files={"m.json": MOVE % 0},
)
tools(
    "reassign-unknown-broker",
    MADE,
    says("reassign-partitions --reassignment-json-file $D/m.json --execute", "77"),
    files={"m.json": MOVE % 77},
)
tools(
    "reassign-duplicate-replica",
    MADE,
    says("reassign-partitions --reassignment-json-file $D/m.json --execute", "duplicate"),
    files={"m.json": MOVE % "0, 0"},
)
tools(
    "reassign-not-json",
    MADE,
    says("reassign-partitions --reassignment-json-file $D/m.json --execute", "json"),
    files={"m.json": "move"},
)
tools("reassign-no-action", says("reassign-partitions", "--execute"))
tools(
    "reassign-two-actions",
    says("reassign-partitions --execute --verify --reassignment-json-file $D/m.json", "--verify"),
    files={"m.json": MOVE % 0},
)
tools(
    "reassign-generate",
    MADE,
    says(
        "reassign-partitions --generate --topics-to-move-json-file $D/t.json --broker-list 0",
        "Current partition replica assignment",
        "Proposed partition reassignment configuration",
    ),
    files={"t.json": '{"topics": [{"topic": "$T"}], "version": 1}'},
)
tools(
    "perf-producer",
    MADE,
    says(
        "producer-perf-test --topic $T --num-records 10 --record-size 10 --throughput -1",
        "10 records sent",
        "records/sec",
        "99.9th",
    ),
)
tools(
    "perf-producer-no-size", MADE, says("producer-perf-test --topic $T --num-records 10 --throughput -1", "record-size")
)
tools(
    "perf-producer-no-throughput",
    MADE,
    says("producer-perf-test --topic $T --num-records 10 --record-size 10", "throughput"),
)
tools(
    "perf-producer-size-and-file",
    MADE,
    says(
        "producer-perf-test --topic $T --num-records 1 --record-size 1 --payload-file $D/f --throughput -1",
        "payload-file",
    ),
    files={"f": "v\n"},
)
tools(
    "perf-producer-0-records",
    MADE,
    says("producer-perf-test --topic $T --num-records 0 --record-size 10 --throughput -1", "num-records"),
)
tools(
    "perf-producer-payload",
    MADE,
    says("producer-perf-test --topic $T --num-records 3 --payload-file $D/f --throughput -1", "3 records sent"),
    "get-offsets --topic $T",
    files={"f": "a\nb\n"},
)
tools(
    "perf-consumer",
    MADE,
    FILL,
    says("consumer-perf-test --topic $T --num-records 5 --group $G", "start.time, end.time", "rebalance.time.ms"),
)
tools("perf-consumer-no-topic", says("consumer-perf-test --num-records 5", "topic"))
tools(
    "perf-consumer-timeout",
    MADE,
    FILL,
    says("consumer-perf-test --topic $T --num-records 50 --group $G --timeout 1000", "expected number of records"),
)
tools(
    "perf-consumer-old-messages",
    MADE,
    FILL,
    says("consumer-perf-test --topic $T --messages 5 --group $G", "deprecated"),
)
tools(
    "e2e-latency",
    MADE,
    says(
        "e2e-latency --topic $T --num-records 3 --producer-acks all --record-size 10",
        "Avg latency",
        "Percentiles: 50th",
    ),
)
tools(
    "e2e-latency-acks", MADE, says("e2e-latency --topic $T --num-records 3 --producer-acks 0 --record-size 10", "acks")
)
tools("e2e-latency-no-topic", says("e2e-latency --num-records 3 --producer-acks all --record-size 10", "topic"))
tools(
    "verifiable-producer",
    MADE,
    says(
        "verifiable-producer --topic $T --max-messages 2",
        "startup_complete",
        "producer_send_success",
        "tool_data",
        "shutdown_complete",
    ),
)
tools(
    "verifiable-consumer",
    MADE,
    FILL,
    says(
        "verifiable-consumer --topic $T --group-id $G --max-messages 5 --verbose",
        "startup_complete",
        "partitions_assigned",
        "records_consumed",
        "record_data",
        "offsets_committed",
        "shutdown_complete",
    ),
)
tools("dump-log-no-files", says("dump-log", "files"))
tools("dump-log-missing-file", says("dump-log --files 00000000000000000000.log", "00000000000000000000.log"))

# -- flags of every tool

TOOLS = (
    "topics",
    "configs",
    "console-producer",
    "console-consumer",
    "consumer-groups",
    "get-offsets",
    "delete-records",
)
for tool in TOOLS:
    tools(f"help-of-{tool}", says(f"{tool} --help", "--bootstrap-server"))
    tools(f"missing-config-of-{tool}", says(f"{tool} --command-config $D/none.properties", "none.properties"))
