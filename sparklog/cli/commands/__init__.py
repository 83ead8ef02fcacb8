"""The commands of ``sparklog``, one module each: ``admin`` (topics, groups, configs, brokers), ``clients`` (produce and
consume), ``storage`` (maintenance, checks, dumps) and ``monitoring``. A command's module is imported when the command
is run.
"""

from __future__ import annotations

import importlib.util
from types import ModuleType

COMMANDS = {
    "topics": "create, list, describe, alter and delete topics",
    "configs": "describe and alter settings of topics and of the cluster",
    "schemas": "list and describe the versions of the schemas of topics",
    "console-producer": "send lines of text as records",
    "console-consumer": "print records",
    "get-offsets": "print the earliest, latest or timed offsets of partitions",
    "consumer-groups": "describe and delete consumer groups, and set their offsets",
    "groups": "list groups with type and protocol",
    "transactions": "list and describe transactional ids and producers",
    "applications": "list and forget applications that number their writes",
    "e2e-latency": "measure the latency of a record from producer to consumer",
    "producer-perf-test": "measure the throughput of a producer",
    "consumer-perf-test": "measure the throughput of a consumer",
    "verifiable-producer": "send numbers and print the outcome of each as JSON",
    "verifiable-consumer": "consume in a group and print each event as JSON",
    "delete-records": "delete the records before an offset",
    "metrics": "export metrics for Prometheus",
    "maintain": "run roll, retention, compaction, replication and other maintenance",
    "alerts": "evaluate rules, and tell of what fires",
    "top": "show lag and throughput live in a terminal",
    "brokers": "add, list, remove and cordon storage locations",
    "leader-election": "elect preferred replicas, or replicas that are out of sync, as leaders",
    "reassign-partitions": "move replicas to other brokers",
    "replica-verification": "read all replicas and compare them",
    "log-dirs": "print the size of each partition at each broker",
    "vacuum": "delete orphans: files left behind by failed writers",
    "fsck": "verify all files against their checksums, and repair them",
    "dump-log": "print and verify .log and .index files",
    "system": "print system tables: lag at any time, throughput, commits, segments and others",
    "features": "describe and raise the cluster's feature level",
    "cluster": "create, describe and mirror a cluster, or print its id",
    "ui": "serve a web page that shows clusters",
    "jobs": "list the programs for spark-submit and their paths",
    "completion": "print a completion script for bash or zsh",
}

_PACKAGES = ("", ".admin", ".clients", ".storage", ".monitoring")


def load_command(name: str) -> ModuleType:
    """Import the module of a command in ``COMMANDS``: ``parser()`` returns its options, ``run(options)`` runs it."""
    modules = (f"{__name__}{package}.{name.replace('-', '_')}" for package in _PACKAGES)
    return importlib.import_module(next(filter(importlib.util.find_spec, modules)))
