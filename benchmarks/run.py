"""Measure sparklog against references in the same run; prints a table and writes JSON below artifacts/benchmarks/.

make bench                                     everything, some eleven minutes
.venv/bin/python benchmarks/run.py --quick     fewer rows and runs, for a look
.venv/bin/python benchmarks/run.py --only commit --only lookup
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import os
import platform
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.measure import RESULTS, Figure, Settings, print_table

BENCHMARKS = {
    "lookup": ("benchmarks.lookup", "run"),
    "commit": ("benchmarks.commit", "run"),
    "racing": ("benchmarks.commit", "run_racing"),
    "scale": ("benchmarks.scale", "run"),
    "latency": ("benchmarks.latency", "run"),
    "produce": ("benchmarks.produce", "run"),
    "read": ("benchmarks.read", "run"),
    "projection": ("benchmarks.read", "run_projection"),
    "small partitions": ("benchmarks.read", "run_small"),
    "memory": ("benchmarks.memory", "run"),
    "stream": ("benchmarks.stream", "run"),
    "small batches": ("benchmarks.stream", "run_small"),
    "clients": ("benchmarks.clients", "run"),
    "consumers": ("benchmarks.consumers", "run"),
    "replicas": ("benchmarks.replicas", "run"),
    "maintenance": ("benchmarks.maintenance", "run"),
    "retention": ("benchmarks.maintenance_retention", "run"),
    "fsck": ("benchmarks.fsck", "run"),
    "exporter": ("benchmarks.exporter", "run"),
    "history": ("benchmarks.history", "run"),
    "row groups": ("benchmarks.history_row_groups", "run"),
    "ui": ("benchmarks.ui", "run"),
    "monitoring": ("benchmarks.monitoring", "run"),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rows and runs")
    parser.add_argument("--only", action="append", choices=list(BENCHMARKS), help="one benchmark; may be repeated")
    parser.add_argument("--runs", type=int, help="runs of each side of a comparison")
    parser.add_argument("--rows", type=int, help="rows that Spark writes and reads, 4 million by default")
    arguments = parser.parse_args()
    settings = Settings(rows=500_000, runs=3, quick=True) if arguments.quick else Settings()
    given = {name: getattr(arguments, name) for name in ("runs", "rows") if getattr(arguments, name)}
    settings = dataclasses.replace(settings, **given)
    figures: list[Figure] = []
    for name in arguments.only or BENCHMARKS:
        module, function = BENCHMARKS[name]
        start = time.perf_counter()
        print(f"{name} ...", file=sys.stderr, end=" ", flush=True)
        figures += getattr(importlib.import_module(module), function)(settings)
        print(f"{time.perf_counter() - start:.0f} s", file=sys.stderr)
    print_table(figures)
    print(f"\nwritten to {write_json(figures, settings)}")
    return 0


def write_json(figures: list[Figure], settings: Settings) -> Path:
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.json"
    machine = {"cores": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
    document = {
        "settings": dataclasses.asdict(settings),
        "machine": machine,
        "figures": [dataclasses.asdict(figure) for figure in figures],
    }
    path.write_text(json.dumps(document, indent=1) + "\n")
    return path


if __name__ == "__main__":
    sys.exit(main())
