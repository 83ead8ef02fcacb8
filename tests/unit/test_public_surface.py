"""What users import: the list of public names, and that README, documents, notebooks and jobs need no others."""

from __future__ import annotations

import ast
import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]

PUBLIC = {
    "sparklog": (
        "AdminClient Cluster ConfigResource ConfigResourceType Consumer ConsumerRebalanceListener ConsumerRecord "
        "KafkaAdminClient KafkaConsumer KafkaProducer NewPartitions NewTopic OffsetAndMetadata OffsetAndTimestamp "
        "OffsetSpec Producer RecordMetadata Scan Snapshot SparklogError System TopicPartition __version__ "
        "create_cluster create_view errors kafka open_cluster plot read register scan snapshot system table write "
        "write_batch"
    ),
    "sparklog.plot": "lag segments throughput",
    "sparklog.spark": (
        "LagListener SparkTasks consume create_view read register sparklog_session table write write_batch"
    ),
    "sparklog.maintenance": "ProcessPool Scope check_cluster repair_cluster",
    "sparklog.testing": (
        "Cluster CountingStore Fault FaultyStore Finding History MemoryStore OperationLog POLL READ Read Record SEND "
        "SimulatedCrash SimulatedInterrupt Write append_records assert_clean check cluster create_cluster every_crash "
        "every_outcome open_cluster"
    ),
}
"""All names that users may rely on, by module. Besides: ``sparklog.errors``, and ``sparklog.kafka`` with its modules,
which are kafka-python's. Everything else is private, whatever its name."""

WHOLE = ("sparklog.errors", "sparklog.kafka")
"""Public with all that is in them."""

FOR_JOBS = ("sparklog.spark.jobs", "sparklog.maintenance.steps", "sparklog.maintenance.loop", "sparklog.coordinator")
"""What the programs of jobs/, which are part of the package, use besides."""


class Import(NamedTuple):
    source: str
    module: str
    name: str


def python_of(path: Path) -> Iterator[str]:
    """Yield the Python code of a program, a notebook or a document."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        yield text
    elif path.suffix == ".ipynb":
        for cell in json.loads(text)["cells"]:
            if cell["cell_type"] == "code":
                yield "".join(line for line in cell["source"] if not line.lstrip().startswith(("%", "!")))
    else:
        yield from re.findall(r"^(?: {4})?((?:from|import) sparklog.*)$", text, re.M)
        yield from re.findall(r"^from sparklog[.\w]* import \([^)]*\)", text, re.M)


def imports() -> list[Import]:
    """Return each name of sparklog that README, documents, notebooks and jobs import."""
    found = set()
    paths = [ROOT / "README.md"]
    for pattern in ("docs/*.md", "notebooks/*.ipynb", "jobs/*.py"):
        paths += sorted(ROOT.glob(pattern))
    for path in paths:
        for code in python_of(path):
            try:
                tree = ast.parse(code)
            except SyntaxError:
                continue  # the first line of an import in parentheses, which is found whole as well
            for node in ast.walk(tree):
                if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "sparklog":
                    found |= {Import(str(path.relative_to(ROOT)), node.module or "", name.name) for name in node.names}
    return sorted(found)


@pytest.mark.parametrize("module", PUBLIC)
def test_the_exported_names_are_those_of_the_list(module: str) -> None:
    imported = importlib.import_module(module)
    assert sorted(imported.__all__) == sorted(PUBLIC[module].split())
    for name in imported.__all__:
        assert getattr(imported, name) is not None


def test_imports_are_found_in_every_kind_of_document() -> None:
    assert {Path(found.source).suffix for found in imports()} == {".md", ".ipynb", ".py"}


@pytest.mark.parametrize("found", imports(), ids=lambda found: f"{found.source}: {found.module}.{found.name}")
def test_what_users_are_shown_imports_public_names_alone(found: Import) -> None:
    if found.source.startswith("jobs/") and found.module.startswith(FOR_JOBS):
        return
    if found.module.startswith(WHOLE):
        assert hasattr(importlib.import_module(found.module), found.name)
    else:
        assert found.name in PUBLIC.get(found.module, "").split(), found
