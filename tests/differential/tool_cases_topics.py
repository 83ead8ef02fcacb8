"""kafka-topics, kafka-configs, kafka-get-offsets and kafka-delete-records, and sparklog's commands of those names."""

from __future__ import annotations

from tests.differential.cases import Line, only, piped, says, tools

MADE = "~topics --create --topic $T"
THREE = "~topics --create --topic $T --partitions 3"
FILL = "console-producer --topic $T"


def filled(count: int) -> Line:
    return piped("~" + FILL, "".join(f"line-{number}\n" for number in range(count)).encode())


# -- topics: create, list

tools(
    "topics-create", "topics --create --topic $T", "topics --create --topic $T-2 --partitions 2 --replication-factor 1"
)
tools("topics-create-twice", MADE, says("topics --create --topic $T", "already exists"))
tools("topics-create-if-not-exists", MADE, "topics --create --topic $T --if-not-exists")
tools("topics-create-new-if-not-exists", "topics --create --topic $T --if-not-exists")
tools("topics-create.with.dots", "topics --create --topic $T")
tools("topics-create_with_underscore", "topics --create --topic $T")
tools("topics-create-colliding", "~topics --create --topic $T.a", says("topics --create --topic $T_a", "collides"))
tools("topics-create-invalid", says("topics --create --topic 'a b'", "invalid"))
tools("topics-create-slash", says("topics --create --topic a/b", "invalid"))
tools("topics-create-dots", says("topics --create --topic ..", "invalid"))
tools("topics-create-empty", says("topics --create --topic ''", "topic"))
tools("topics-create-long", says(f"topics --create --topic {'t' * 250}", "249"))
tools("topics-create-longest", only(f"topics --create --topic {'t' * 249}", "Created"))
tools("topics-create-0-partitions", says("topics --create --topic $T --partitions 0", "partitions"))
tools("topics-create-negative-partitions", says("topics --create --topic $T --partitions -1", "partitions"))
tools("topics-create-text-partitions", says("topics --create --topic $T --partitions many", "many"))
tools(
    "topics-create-too-many-replicas", says("topics --create --topic $T --replication-factor 3", "replication factor")
)
tools("topics-create-0-replicas", says("topics --create --topic $T --replication-factor 0", "replication factor"))
tools(
    "topics-create-config",
    "topics --create --topic $T --config retention.ms=1000 --config max.message.bytes=2000",
    only("configs --describe --topic $T", "retention.ms"),
    only("configs --describe --topic $T", "max.message.bytes"),
)
tools(
    "topics-create-unknown-config",
    says("topics --create --topic $T --config no.such=1", "Unknown topic config name", "no.such"),
)
tools(
    "topics-create-wrong-config",
    says("topics --create --topic $T --config retention.ms=x", "Invalid value x for configuration retention.ms"),
)
tools("topics-create-config-without-value", says("topics --create --topic $T --config retention.ms", "retention.ms"))
tools(
    "topics-create-assignment",
    "topics --create --topic $T --replica-assignment 0,0",
    only("topics --describe --topic $T", "PartitionCount: 2"),
)
tools("topics-create-wrong-assignment", says("topics --create --topic $T --replica-assignment 77", "77"))
tools(
    "topics-create-assignment-and-partitions",
    says("topics --create --topic $T --replica-assignment 0 --partitions 1", "replica-assignment"),
)
tools("topics-create-without-topic", says("topics --create", "topic"))
tools("topics-create-two", says("topics --create --topic $T-1 --topic $T-2", "topic"), only("topics --list"))
tools("topics-list", "~topics --create --topic $T-b", "~topics --create --topic $T-a", only("topics --list"))
tools("topics-list-one", MADE, "topics --list --topic $T", "topics --list --topic nothing-$T")
tools(
    "topics-list-pattern",
    "~topics --create --topic $T-a",
    "~topics --create --topic $T-b",
    "topics --list --topic '$T-.*'",
)
tools("topics-list-bad-pattern", says("topics --list --topic '['"))
tools("topics-list-exclude-internal", MADE, only("topics --list --exclude-internal"))
tools("topics-two-actions", says("topics --list --describe", "exactly one action"))
tools("topics-no-action", says("topics", "exactly one action"))
tools("topics-unknown-flag", says("topics --list --nope", "nope"))
tools("topics-shortened-flag", says("topics --creat --topic $T", "creat"))
tools("topics-stray-word", MADE, only("topics --list stray"))

# -- topics: describe, alter, delete

tools("topics-describe", THREE, only("topics --describe --topic $T"))
tools("topics-describe-unknown", says("topics --describe --topic $T", "does not exist"))
tools("topics-describe-unknown-if-exists", "topics --describe --topic $T --if-exists")
tools(
    "topics-describe-config",
    "~topics --create --topic $T --config retention.ms=1000",
    only("topics --describe --topic $T", "retention.ms"),
)
tools(
    "topics-describe-pattern",
    "~topics --create --topic $T-a",
    "~topics --create --topic $T-b",
    only("topics --describe --topic '$T-.'"),
)
tools("topics-describe-under-replicated", MADE, "topics --describe --topic $T --under-replicated-partitions")
tools("topics-describe-unavailable", MADE, "topics --describe --topic $T --unavailable-partitions")
tools("topics-describe-at-min-isr", MADE, only("topics --describe --topic $T --at-min-isr-partitions"))
tools("topics-describe-under-min-isr", MADE, "topics --describe --topic $T --under-min-isr-partitions")
tools(
    "topics-describe-overrides",
    "~topics --create --topic $T --config retention.ms=1000",
    only("topics --describe --topic $T --topics-with-overrides", "PartitionCount"),
)
tools(
    "topics-describe-two-filters",
    says("topics --describe --under-replicated-partitions --unavailable-partitions", "unavailable-partitions"),
)
tools("topics-list-with-filter", says("topics --list --under-replicated-partitions", "under-replicated-partitions"))
tools("topics-describe-topic-id-unknown", says("topics --describe --topic-id AAAAAAAAAAAAAAAAAAAAAA", "does not exist"))
tools("topics-describe-topic-id-wrong", says("topics --describe --topic-id short"))
tools(
    "topics-alter",
    MADE,
    "topics --alter --topic $T --partitions 3",
    only("topics --describe --topic $T", "PartitionCount: 3"),
)
tools("topics-alter-fewer", THREE, says("topics --alter --topic $T --partitions 2", "currently has 3 partition"))
tools("topics-alter-same", THREE, says("topics --alter --topic $T --partitions 3", "already has 3 partition"))
tools("topics-alter-0", THREE, says("topics --alter --topic $T --partitions 0", "partition"))
tools("topics-alter-unknown", says("topics --alter --topic $T --partitions 2", "does not exist"))
tools("topics-alter-unknown-if-exists", "topics --alter --topic $T --partitions 2 --if-exists")
tools("topics-alter-config", MADE, says("topics --alter --topic $T --config retention.ms=1", "config"))
tools("topics-alter-delete-config", MADE, says("topics --alter --topic $T --delete-config retention.ms", "config"))
tools("topics-alter-without-partitions", MADE, says("topics --alter --topic $T", "partitions"))
tools(
    "topics-alter-replication-factor",
    MADE,
    says("topics --alter --topic $T --partitions 2 --replication-factor 1", "replication-factor"),
)
tools("topics-delete", MADE, "topics --delete --topic $T", only("topics --list"))
tools("topics-delete-unknown", says("topics --delete --topic $T", "does not exist"))
tools("topics-delete-unknown-if-exists", "topics --delete --topic $T --if-exists")
tools(
    "topics-delete-pattern",
    "~topics --create --topic $T-a",
    "~topics --create --topic $T-b",
    "topics --delete --topic '$T-.'",
    only("topics --list"),
)
tools(
    "topics-delete-two",
    "~topics --create --topic $T-a",
    "~topics --create --topic $T-b",
    says("topics --delete --topic $T-a --topic $T-b", "topic"),
    only("topics --list"),
)
tools("topics-delete-without-topic", says("topics --delete", "topic"))
tools("topics-delete-internal", says("topics --delete --topic __consumer_offsets", "internal"))
tools(
    "topics-offsets-topic",
    MADE,
    filled(1),
    "~console-consumer --topic $T --group $G --from-beginning --max-messages 1 --timeout-ms 8000",
    only("topics --list --topic __consumer_offsets", "__consumer_offsets"),
)

# -- configs

tools(
    "configs-describe",
    "~topics --create --topic $T --config retention.ms=1000",
    only("configs --describe --topic $T", "retention.ms"),
)
tools(
    "configs-describe-nothing-set",
    MADE,
    only("configs --describe --entity-type topics --entity-name $T", "Dynamic configs"),
)
tools("configs-describe-unknown", says("configs --describe --entity-type topics --entity-name $T", "doesn't exist"))
tools("configs-describe-all", MADE, only("configs --describe --topic $T --all", "retention.ms"))
tools("configs-describe-all-topics", MADE, only("configs --describe --entity-type topics"))
tools(
    "configs-add",
    MADE,
    "configs --alter --topic $T --add-config retention.ms=1000,max.message.bytes=2000",
    only("configs --describe --topic $T", "retention.ms"),
)
tools(
    "configs-add-list",
    MADE,
    "configs --alter --topic $T --add-config cleanup.policy=[compact,delete]",
    only("configs --describe --topic $T", "cleanup.policy"),
)
tools(
    "configs-add-unknown",
    MADE,
    says("configs --alter --topic $T --add-config no.such=1", "Unknown topic config name", "no.such"),
)
tools(
    "configs-add-wrong",
    MADE,
    says("configs --alter --topic $T --add-config retention.ms=x", "Invalid value x for configuration retention.ms"),
)
tools("configs-add-to-unknown-topic", says("configs --alter --topic $T --add-config retention.ms=1", "does not exist"))
tools("configs-add-nothing", MADE, says("configs --alter --topic $T --add-config ''"))
tools("configs-add-without-value", MADE, says("configs --alter --topic $T --add-config retention.ms"))
tools(
    "configs-add-twice",
    MADE,
    says("configs --alter --topic $T --add-config retention.ms=1000 --add-config max.message.bytes=2000", "add-config"),
    only("configs --describe --topic $T", "retention.ms"),
)
tools(
    "configs-add-and-delete-one-key",
    MADE,
    says("configs --alter --topic $T --add-config retention.ms=1 --delete-config retention.ms", "duplicate"),
    only("configs --describe --topic $T", "retention.ms="),
)
tools(
    "configs-add-key-twice",
    MADE,
    "configs --alter --topic $T --add-config retention.ms=1000,retention.ms=2000",
    only("configs --describe --topic $T", "retention.ms="),
)
tools(
    "configs-delete",
    "~topics --create --topic $T --config retention.ms=1000",
    "configs --alter --topic $T --delete-config retention.ms",
    only("configs --describe --topic $T", "retention.ms="),
)
tools("configs-delete-not-set", MADE, "configs --alter --topic $T --delete-config retention.ms")
tools("configs-delete-unknown", MADE, says("configs --alter --topic $T --delete-config no.such", "no.such"))
tools(
    "configs-delete-two",
    "~topics --create --topic $T --config retention.ms=1000 --config segment.ms=60000",
    "configs --alter --topic $T --delete-config retention.ms,segment.ms",
    only("configs --describe --topic $T", "=1000"),
)
tools(
    "configs-add-file",
    MADE,
    "configs --alter --topic $T --add-config-file $D/some.properties",
    only("configs --describe --topic $T", "retention.ms"),
    files={"some.properties": "# a comment\nretention.ms=7000\n"},
)
tools(
    "configs-add-missing-file",
    MADE,
    says("configs --alter --topic $T --add-config-file $D/no.properties", "no.properties"),
)
tools(
    "configs-add-and-file",
    MADE,
    says("configs --alter --topic $T --add-config a=b --add-config-file $D/some.properties", "add-config"),
    files={"some.properties": "retention.ms=7000\n"},
)
tools("configs-alter-nothing", MADE, says("configs --alter --topic $T", "add-config"))
tools("configs-no-action", says("configs --topic $T", "alter", "describe"))
tools("configs-both-actions", says("configs --topic $T --alter --describe"))
tools("configs-no-entity", says("configs --describe", "entity"))
tools("configs-unknown-entity", says("configs --describe --entity-type planets", "planets"))
tools("configs-entity-without-type", says("configs --describe --entity-name $T", "entity"))
tools(
    "configs-remote-storage",
    MADE,
    says("configs --alter --topic $T --add-config remote.storage.enable=true", "remote.storage.enable"),
)
tools(
    "configs-policy-twice",
    MADE,
    only("configs --alter --topic $T --add-config cleanup.policy=[compact,compact]", "Completed"),
)
tools("configs-brokers-default", only("configs --describe --entity-type brokers --entity-default", "Default configs"))
tools("configs-broker-unknown", says("configs --describe --broker 77"))
tools("configs-broker-text", says("configs --describe --broker one", "one"))
tools("configs-group", "configs --describe --group $G")

# -- get-offsets

tools("get-offsets", THREE, "get-offsets --topic $T")
tools(
    "get-offsets-filled",
    MADE,
    filled(3),
    "get-offsets --topic $T",
    "get-offsets --topic $T --time -1",
    "get-offsets --topic $T --time earliest",
)
tools(
    "get-offsets-max-timestamp",
    MADE,
    filled(1),
    "get-offsets --topic $T --time -3",
    "get-offsets --topic $T --time max-timestamp",
)
tools("get-offsets-max-timestamp-empty", MADE, "get-offsets --topic $T --time max-timestamp")
tools("get-offsets-local", MADE, filled(1), "get-offsets --topic $T --time earliest-local")
tools("get-offsets-tiered", MADE, filled(1), "get-offsets --topic $T --time latest-tiered")
tools("get-offsets-of-past", MADE, filled(2), "get-offsets --topic $T --time 1000")
tools("get-offsets-of-future", MADE, filled(2), "get-offsets --topic $T --time 9000000000000")
tools("get-offsets-wrong-time", MADE, says("get-offsets --topic $T --time yesterday", "yesterday"))
tools("get-offsets-negative-time", MADE, says("get-offsets --topic $T --time -9"))
tools(
    "get-offsets-partitions",
    THREE,
    "get-offsets --topic $T --partitions 0,2",
    says("get-offsets --topic $T --partitions 9", "partition"),
)
tools("get-offsets-partition-text", THREE, says("get-offsets --topic $T --partitions zero", "zero"))
tools("get-offsets-unknown", says("get-offsets --topic $T", "topic"))
tools(
    "get-offsets-topic-partitions",
    THREE,
    "get-offsets --topic-partitions $T:0",
    "get-offsets --topic-partitions $T:1-",
    "get-offsets --topic-partitions $T:0-2",
    "get-offsets --topic-partitions '$T.*:-2'",
)
tools("get-offsets-topic-partitions-list", THREE, "get-offsets --topic-partitions $T:0,$T:2")
tools("get-offsets-topic-partitions-wrong", THREE, says("get-offsets --topic-partitions $T:a", "a"))
tools("get-offsets-both", THREE, says("get-offsets --topic $T --topic-partitions $T:0", "topic-partitions"))
tools(
    "get-offsets-pattern",
    "~topics --create --topic $T-a",
    "~topics --create --topic $T-b",
    "get-offsets --topic '$T-.*'",
)
tools("get-offsets-two-topics", THREE, says("get-offsets --topic $T --topic $T", "topic"))
tools("get-offsets-unknown-flag", says("get-offsets --nope", "nope"))

# -- delete-records

RECORDS = '{"partitions": [{"topic": "$T", "partition": 0, "offset": %s}], "version": 1}'


def deletion(name: str, text: str, *words: str) -> None:
    line = (
        says("delete-records --offset-json-file $D/f.json", *words)
        if words
        else "delete-records --offset-json-file $D/f.json"
    )
    tools(
        f"delete-records-{name}",
        MADE,
        filled(3),
        line,
        "get-offsets --topic $T --time earliest",
        files={"f.json": text},
    )


deletion("some", RECORDS % 2)
deletion("all", RECORDS % -1)
deletion("none", RECORDS % 0)
deletion("beyond", RECORDS % 9, "error", "offset")
deletion("negative", RECORDS % -2, "error", "offset")
deletion(
    "twice",
    '{"partitions": [{"topic": "$T", "partition": 0, "offset": 1}, {"topic": "$T", "partition": 0, "offset": 2}]}',
    "duplicate",
)
deletion("no-version", '{"partitions": [{"topic": "$T", "partition": 0, "offset": 1}]}')
deletion("future-version", '{"version": 7, "partitions": []}', "version")
deletion("empty", '{"partitions": [], "version": 1}')
deletion("no-partitions", '{"version": 1}', "partitions")
deletion("not-json", "partitions", "json")
tools("delete-records-no-file", says("delete-records --offset-json-file $D/no.json", "no.json"))
tools("delete-records-no-flag", says("delete-records", "offset-json-file"))
