"""kafka-console-producer and kafka-console-consumer, and sparklog's commands of those names."""

from __future__ import annotations

from tests.differential.cases import Line, piped, says, tools

MADE = "~topics --create --topic $T"
READ = "console-consumer --topic $T --from-beginning --timeout-ms 1500"


def keyed(text: bytes, *properties: str) -> Line:
    given = "".join(f" --reader-property {each}" for each in properties)
    return piped(f"console-producer --topic $T{given}", text)


def shown(*properties: str, flags: str = "") -> str:
    return READ + "".join(f" --formatter-property {each}" for each in properties) + (f" {flags}" if flags else "")


def lines(name: str, stdin: bytes, *properties: str) -> None:
    """Register a case that produces these lines and reads the stored records."""
    tools(
        f"console-lines-{name}",
        MADE,
        keyed(stdin, *properties),
        shown("print.key=true", "print.headers=true", "key.separator=|"),
    )


KEYS = ("parse.key=true", "key.separator=:")
HEADERS = ("parse.headers=true",)

# -- lines to records

lines("plain", b"one\ntwo\n")
lines("last-without-end", b"one\ntwo")
lines("empty-line", b"one\n\ntwo\n")
lines("nothing", b"")
lines("spaces", b"  one  \n")
lines("crlf", b"one\r\ntwo\r\n")
lines("unicode", "é – 日\n".encode())
lines("keys", b"k:v\nk2:v:w\n:v\nk:\n", *KEYS)
lines("long-separator", b"k--v\n", "parse.key=true", "key.separator=--")
lines("tab-is-the-separator", b"k\tv\n", "parse.key=true")
lines("headers", b"a:1,b:2\tv\n", *HEADERS)
lines("headers-and-keys", b"a:1\tk:v\n", *HEADERS, *KEYS)
lines("headers-empty-value", b"a:\tv\n", *HEADERS)
lines(
    "headers-other-separators",
    b"a=1;b=2!v\n",
    *HEADERS,
    "headers.delimiter=!",
    "headers.separator=;",
    "headers.key.separator==",
)
lines("null-marker", b"k:NULL\nNULL:v\n", *KEYS, "null.marker=NULL")
lines("null-marker-in-headers", b"a:NULL,b:1\tv\n", *HEADERS, "null.marker=NULL")
lines("ignore-error", b"no separator\nk:v\n", *KEYS, "ignore.error=true")
lines("unknown-property", b"v\n", "no.such=1")


def refused(name: str, stdin: bytes, *properties: str, words: tuple[str, ...]) -> None:
    given = "".join(f" --reader-property {each}" for each in properties)
    tools(f"console-refuses-{name}", MADE, says(f"console-producer --topic $T{given}", *words, stdin=stdin))


refused("no-separator", b"k:v\nkv\n", *KEYS, words=("No key separator found on line number 2", "kv"))
refused("no-header-separator", b"a1\tv\n", *HEADERS, words=("header key separator", "line number 1"))
refused("no-headers-delimiter", b"a:1\n", *HEADERS, words=("headers delimiter", "line number 1"))
refused("equal-separators", b"", *HEADERS, "headers.separator=:", words=("headers.separator",))
refused("key-separator-is-null-marker", b"", *KEYS, "null.marker=:", words=("null.marker",))

tools("console-producer-no-topic", says("console-producer", "topic"))
tools("console-producer-unknown-flag", says("console-producer --topic $T --nope", "nope"))
tools(
    "console-producer-unknown-topic",
    says("console-producer --topic $T --max-block-ms 500", "not present in metadata", stdin=b"v\n"),
)
tools(
    "console-producer-invalid-topic", says("console-producer --topic 'a b' --max-block-ms 500", "invalid", stdin=b"v\n")
)
tools("console-producer-stray-word", MADE, says("console-producer --topic $T stray", stdin=b""))
tools("console-producer-two-topics", MADE, says("console-producer --topic $T --topic $T", "topic", stdin=b""))
tools("console-producer-sync", MADE, piped("console-producer --topic $T --sync", b"one\ntwo\n"), READ)
tools("console-producer-acks-all", MADE, piped("console-producer --topic $T --request-required-acks all", b"v\n"), READ)
tools(
    "console-producer-acks-wrong",
    MADE,
    says("console-producer --topic $T --request-required-acks some", "some", stdin=b"v\n"),
)
tools("console-producer-gzip", MADE, piped("console-producer --topic $T --compression-codec gzip", b"v\n"), READ)
tools("console-producer-bare-codec", MADE, piped("console-producer --topic $T --compression-codec", b"v\n"), READ)
tools(
    "console-producer-codec-wrong",
    MADE,
    says("console-producer --topic $T --compression-codec rar", "rar", stdin=b"v\n"),
)
tools("console-producer-batch-size", MADE, piped("console-producer --topic $T --batch-size 100", b"v\n"), READ)
tools(
    "console-producer-batch-size-text", MADE, says("console-producer --topic $T --batch-size many", "many", stdin=b"")
)
tools(
    "console-producer-reader-config",
    MADE,
    piped("console-producer --topic $T --reader-config $D/r.properties", b"k:v\n"),
    shown("print.key=true"),
    files={"r.properties": "parse.key=true\nkey.separator=:\n"},
)
tools(
    "console-producer-command-config",
    MADE,
    piped("console-producer --topic $T --command-config $D/c.properties", b"v\n"),
    READ,
    files={"c.properties": "linger.ms=5\nacks=all\n"},
)
tools(
    "console-producer-both-configs",
    MADE,
    says(
        "console-producer --topic $T --producer.config $D/c.properties --command-config $D/c.properties",
        "command-config",
        stdin=b"",
    ),
    files={"c.properties": "acks=all\n"},
)
tools(
    "console-producer-both-properties",
    MADE,
    says(
        "console-producer --topic $T --producer-property acks=all --command-property acks=all",
        "command-property",
        stdin=b"",
    ),
)
tools(
    "console-producer-old-property",
    MADE,
    says(
        "console-producer --topic $T --property parse.key=true --property key.separator=:", "deprecated", stdin=b"k:v\n"
    ),
    shown("print.key=true"),
)
tools(
    "console-producer-old-producer-property",
    MADE,
    says("console-producer --topic $T --producer-property acks=all", "deprecated", stdin=b"v\n"),
)
tools(
    "console-producer-both-property-flags",
    MADE,
    says(
        "console-producer --topic $T --property parse.key=true --reader-property parse.key=true",
        "reader-property",
        stdin=b"",
    ),
)
tools(
    "console-producer-too-large",
    "~topics --create --topic $T --config max.message.bytes=100",
    says("console-producer --topic $T", "large", stdin=b"v" * 500 + b"\n"),
)
tools(
    "console-producer-broker-list", MADE, says("console-producer --broker-list x --topic $T", "broker-list", stdin=b"")
)

# -- records to lines

FILLED = (
    MADE,
    piped(
        "~console-producer --topic $T --reader-property parse.key=true --reader-property key.separator=: "
        "--reader-property parse.headers=true",
        b"h:x\tk:v\nh:,i:2\t:w\n",
    ),
)


def formatted(name: str, *properties: str, flags: str = "") -> None:
    tools(f"console-shows-{name}", *FILLED, shown(*properties, flags=flags))


formatted("values")
formatted("keys", "print.key=true")
formatted("headers", "print.headers=true")
formatted("offset", "print.offset=true")
formatted("partition", "print.partition=true")
formatted("timestamp", "print.timestamp=true")
formatted("epoch", "print.epoch=true")
formatted("delivery", "print.delivery=true")
formatted(
    "everything",
    "print.timestamp=true",
    "print.partition=true",
    "print.offset=true",
    "print.headers=true",
    "print.key=true",
)
formatted("no-value", "print.value=false", "print.key=true")
formatted("key-separator", "print.key=true", "key.separator=' = '")
formatted("line-separator", "line.separator=|")
formatted("headers-separator", "print.headers=true", "headers.separator=|")
formatted("null-literal", "print.key=true", "null.literal=NIL")
formatted("unknown-property", "no.such=1")
formatted("string-deserializer", flags="--value-deserializer org.apache.kafka.common.serialization.StringDeserializer")
formatted("no-op", flags="--formatter org.apache.kafka.tools.consumer.NoOpMessageFormatter")
formatted("logging", flags="--formatter org.apache.kafka.tools.consumer.LoggingMessageFormatter")
formatted("max-messages", flags="--max-messages 1")
formatted("partition-0", flags="--partition 0")
tools(
    "console-shows-null",
    MADE,
    piped(
        "~console-producer --topic $T --reader-property parse.key=true --reader-property null.marker=NIL", b"k\tNIL\n"
    ),
    shown("print.key=true"),
)
tools(
    "console-long-deserializer",
    MADE,
    piped("~console-producer --topic $T", b"12345678\n"),
    shown(flags="--value-deserializer org.apache.kafka.common.serialization.LongDeserializer"),
)
tools(
    "console-wrong-deserializer",
    MADE,
    piped("~console-producer --topic $T", b"123\n"),
    says(shown(flags="--value-deserializer org.apache.kafka.common.serialization.LongDeserializer")),
)
tools(
    "console-skips-on-error",
    MADE,
    piped("~console-producer --topic $T", b"123\n12345678\n"),
    shown(flags="--skip-message-on-error --value-deserializer org.apache.kafka.common.serialization.LongDeserializer"),
)
tools("console-unknown-deserializer", MADE, says(READ + " --value-deserializer no.such.Thing", "no.such.Thing"))
tools("console-unknown-formatter", MADE, says(READ + " --formatter no.such.Thing", "no.such.Thing"))
tools("console-counts", *FILLED, piped(READ, b"", err=True))


def consumer(name: str, flags: str, *words: str) -> None:
    tools(
        f"console-consumer-{name}",
        *FILLED,
        says(f"console-consumer {flags}", *words) if words else f"console-consumer {flags}",
    )


consumer("no-topic", "--from-beginning", "topic")
consumer("topic-and-include", "--topic $T --include $T", "include")
consumer("include", "--include '$T.*' --from-beginning --timeout-ms 2500")
consumer("bad-include", "--include '[' --timeout-ms 500", "[")
consumer("offset", "--topic $T --partition 0 --offset 1 --timeout-ms 1500")
consumer("offset-earliest", "--topic $T --partition 0 --offset earliest --timeout-ms 1500")
consumer("offset-latest", "--topic $T --partition 0 --offset latest --timeout-ms 500")
consumer("offset-without-partition", "--topic $T --offset 1", "partition")
consumer("offset-text", "--topic $T --partition 0 --offset some", "some")
consumer("offset-negative", "--topic $T --partition 0 --offset -5", "-5")
consumer("offset-and-beginning", "--topic $T --partition 0 --offset 1 --from-beginning", "from-beginning")
consumer("partition-without-topic", "--include $T --partition 0", "topic")
consumer("partition-unknown", "--topic $T --partition 9 --from-beginning --timeout-ms 1000")
consumer("partition-and-group", "--topic $T --partition 0 --group g", "group")
consumer("latest-is-the-default", "--topic $T --timeout-ms 1500")
consumer("unknown-topic", "--topic none-$T --timeout-ms 800")
consumer("max-messages-text", "--topic $T --max-messages many", "many")
consumer("max-messages-0", "--topic $T --from-beginning --max-messages 0 --timeout-ms 1000")
consumer(
    "isolation-wrong", "--topic $T --from-beginning --isolation-level read_comitted --timeout-ms 500", "read_committed"
)
consumer("isolation", "--topic $T --from-beginning --isolation-level read_committed --timeout-ms 1500")
consumer("unknown-flag", "--topic $T --nope", "nope")
consumer("both-configs", "--topic $T --consumer.config c --command-config $D/c", "command-config")
consumer("both-properties", "--topic $T --consumer-property a=b --command-property a=b", "command-property")
consumer(
    "both-formatter-properties",
    "--topic $T --property print.key=true --formatter-property print.key=true",
    "formatter-property",
)
consumer("old-property", "--topic $T --from-beginning --timeout-ms 1500 --property print.key=true", "deprecated")
consumer("reset-earliest", "--topic $T --command-property auto.offset.reset=earliest --timeout-ms 1500")
consumer(
    "reset-against-beginning",
    "--topic $T --from-beginning --command-property auto.offset.reset=latest",
    "from-beginning",
)
consumer("group-twice", "--topic $T --group a --command-property group.id=b", "group.id")
consumer("two-topics", "--topic $T --topic $T", "topic")
tools(
    "console-consumer-group",
    *FILLED,
    "console-consumer --topic $T --group $G --from-beginning --max-messages 1 --timeout-ms 5000",
    "console-consumer --topic $T --group $G --max-messages 1 --timeout-ms 5000",
)
tools(
    "console-consumer-group-property",
    *FILLED,
    "console-consumer --topic $T --command-property group.id=$G --from-beginning --max-messages 1 --timeout-ms 5000",
    "get-offsets --topic $T",
)
tools(
    "console-formatter-config",
    *FILLED,
    READ + " --formatter-config $D/f.properties",
    files={"f.properties": "print.key=true\nkey.separator=-\n"},
)
