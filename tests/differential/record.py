"""Run every case against a Kafka broker, and compare the answers with answers.json, or write them there.

    make test-differential              compare the file with Kafka's and sparklog's answers
    make test-differential RECORD=1     write the file
    python -m tests.differential.record [--write] [CASE ...]

Starts and stops the broker of scripts/servers/kafka.py and one Java VM for Kafka's tools. Programs run four at a time,
tools one at a time. Without Java 17 or Maven no case runs, and the exit code is 0.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import logging
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scripts.servers import kafka as broker
from scripts.servers.common import ServerFailed, Skipped
from scripts.servers.jars import find_java
from tests.differential.all_cases import CASES
from tests.differential.answers import ANSWERS, ask, read_answers, write_answers
from tests.differential.cases import Case
from tests.differential.targets import Target, Workspace, kafka_target
from tests.differential.tool_vm import ToolVm

BROKER_SETTINGS = {
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
"""Fewer internal partitions and no initial rebalance delay, so that groups form sooner."""
AT_ONCE = 4
SECONDS_PER_CASE = 90.0
SLOW_SECONDS = 5.0


@contextmanager
def running_kafka(folder: Path) -> Iterator[Target]:
    """Start a broker, kafka-python and Kafka's tools. Raise ``Skipped`` if this machine lacks what they need."""
    java = find_java("Kafka")
    sys.path.append(str(broker.install_client("kafka-python")))
    with broker.server(BROKER_SETTINGS) as environment:
        vm = ToolVm(java, broker.broker_jars(), folder)
        try:
            target = kafka_target(environment["SPARKLOG_BENCH_KAFKA"], vm)
            prepare(Workspace(target, "prepare", folder))
            yield target
        finally:
            vm.close()


def prepare(w: Workspace) -> None:
    """Create the broker's internal topics, which on first use takes longer than some cases wait."""
    group = w.consumer(group_id="prepare")
    group.commit({w.partition(w.topic()): w.kafka.OffsetAndMetadata(0, "", -1)})
    producer = w.producer(transactional_id="prepare")
    producer.init_transactions()
    w.close()


def ask_all(cases: Sequence[Case], target: Target, folder: Path) -> dict[str, Any]:
    """Return the answers of the cases that finish in time; print the others and the slow ones."""
    answers: dict[str, Any] = {}

    def one(case: Case) -> None:
        began = time.monotonic()
        outcome: list[Any] = []

        def run() -> None:
            try:
                outcome.append(ask(case, target, folder / case.id))
            except Exception as error:
                print(f"  {case.id}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(SECONDS_PER_CASE)
        seconds = time.monotonic() - began
        if outcome:
            answers[case.id] = outcome[0]
        if not outcome or seconds > SLOW_SECONDS:
            print(f"  {case.id}: {'took' if outcome else 'no answer in'} {seconds:.0f} s", file=sys.stderr, flush=True)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(one, [case for case in cases if not case.of_tools]))
    for case in cases:
        if case.of_tools:
            one(case)
    return answers


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--write", action="store_true", help="write answers.json")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="only these; * and ? are wildcards")
    arguments = parser.parse_args()
    wanted = [each for each in CASES.values() if chosen(each.id, arguments.cases)]
    logging.disable(logging.CRITICAL)  # clients log the failures that cases provoke
    warnings.simplefilter("ignore")
    try:
        with tempfile.TemporaryDirectory(prefix="differential-") as folder, running_kafka(Path(folder)) as target:
            answers = ask_all(wanted, target, Path(folder))
    except Skipped as reason:
        print(f"skipped: {reason}")
        return 0
    except ServerFailed as reason:
        print(f"failed: {reason}", file=sys.stderr)
        return 1
    print(f"Kafka {broker.VERSION} answered {len(answers)} of {len(wanted)} cases")
    stored = read_answers()
    if arguments.write:
        write_answers({**stored, **answers}, set(CASES))
        return 0 if len(answers) == len(wanted) else 1
    other = [each.id for each in wanted if answers.get(each.id) != stored.get(each.id)]
    for case in other:
        print(f"{ANSWERS.name} has another answer of {case}:")
        print(f"  stored: {json.dumps(stored.get(case))}\n  now:    {json.dumps(answers.get(case))}")
    return 1 if other else 0


def chosen(case: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatch.fnmatchcase(case, pattern) for pattern in patterns)


if __name__ == "__main__":
    sys.exit(main())
