"""The commands of ``sparklog``, one module each: ``admin`` (topics, groups, configs, brokers), ``clients`` (produce and
consume) and ``storage`` (maintenance, checks, dumps). A command's module is imported when the command is run.
"""

from __future__ import annotations

import importlib
from types import ModuleType

COMMANDS = {
    "topics": "create, list, describe, alter and delete topics",
    "configs": "show and change settings of topics and of the cluster",
    "console-producer": "send lines of text as records",
    "console-consumer": "print records",
    "get-offsets": "print the earliest, latest or timed offsets of partitions",
    "consumer-groups": "describe and delete consumer groups, and set their offsets",
    "groups": "list groups with type and protocol",
    "transactions": "list and describe transactional ids and producers",
    "applications": "list and forget applications whose writes are numbered",
    "e2e-latency": "measure how long a record takes from its sending to its reading",
    "producer-perf-test": "measure how fast records can be sent",
    "consumer-perf-test": "measure how fast records can be read",
    "verifiable-producer": "send numbers and print as JSON what came of each",
    "verifiable-consumer": "read in a group and print as JSON what happens",
    "delete-records": "delete the records before an offset",
    "maintain": "roll, retention, compaction, replication and what else a log needs",
    "brokers": "add, list, remove and cordon storage locations",
    "leader-election": "let preferred replicas lead, or ones that are out of sync",
    "reassign-partitions": "move replicas to other brokers",
    "replica-verification": "read all replicas and compare them",
    "log-dirs": "print how much of which partition each broker holds",
    "vacuum": "delete what writers that died have left behind",
    "fsck": "check everything against its checksums, and repair it",
    "dump-log": "print and verify .log and .index files",
    "cluster": "create a cluster, describe it, print its id, mirror it",
    "jobs": "list the programs for spark-submit and where they are",
    "completion": "print what makes bash or zsh complete commands and options",
}

_PACKAGES = {
    "clients": {
        "console-producer",
        "console-consumer",
        "e2e-latency",
        "producer-perf-test",
        "consumer-perf-test",
        "verifiable-producer",
        "verifiable-consumer",
    },
    "storage": {"maintain", "replica-verification", "vacuum", "fsck", "dump-log"},
    "": {"jobs", "completion"},
}
"""Package -> its commands; all others are in ``admin``."""


def load_command(name: str) -> ModuleType:
    """The module of a command in ``COMMANDS``: ``parser()`` describes its options, ``run(options)`` runs it."""
    package = next((package for package, names in _PACKAGES.items() if name in names), "admin")
    parts = [__name__, package, name.replace("-", "_")]
    return importlib.import_module(".".join(part for part in parts if part))
