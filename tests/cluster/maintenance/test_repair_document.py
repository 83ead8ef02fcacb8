"""docs/repair.md explains every kind of finding and every field of the JSON report."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

from sparklog.client.reader import LogReader
from sparklog.maintenance.fsck.kinds import KINDS, Checked, Finding, Repair, Report
from sparklog.testing.records import Record, append_records
from tests.cluster.maintenance.damaged_clusters import DamagedCluster

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "repair.md"


def test_every_kind_of_finding_has_a_row() -> None:
    rows = re.findall(r"^\| ((?:`[a-z-]+`(?:, )?)+) \|", DOCUMENT.read_text(), re.M)
    named = [kind for row in rows for kind in re.findall(r"`([a-z-]+)`", row)]
    assert set(KINDS) == {kind for kind in named if kind in KINDS}
    assert len(named) == len(set(named))


def test_every_field_of_the_json_is_named() -> None:
    named = set(re.findall(r"`([a-z_]+)`", DOCUMENT.read_text().partition("## JSON")[2]))
    for struct in (Report, Checked, Finding, Repair):
        assert set(struct.__struct_fields__) <= named, struct


def test_records_of_a_file_without_index_are_produced_again(tmp_path: Path) -> None:
    """The commands of "Records of a file without index", and its program word for word."""
    cluster = DamagedCluster(tmp_path)
    for value in (b"first", b"\xff"):
        records = [Record(b"k", value, timestamp_us=7_000, partition=1), Record(b"k", None, partition=1)]
        append_records(cluster.coordinator, "orders", records)
    section = DOCUMENT.read_text().partition("## Records of a file without index")[2].partition("\n## ")[0]
    program = textwrap.dedent(section.partition("```python\n")[2].partition("```")[0])
    files = sorted((cluster.root / "orders-1").glob("*.log"))
    for file in files:
        file.with_suffix(".index").unlink()

    def copy(file: Path, first: int) -> subprocess.CompletedProcess[str]:
        dump = ["dump-log", "--bootstrap-server", str(cluster.root), "--files", str(file), "--print-data-log", "--json"]
        dumped = subprocess.run(
            [sys.executable, "-m", "sparklog.cli", *dump], capture_output=True, check=True, text=True
        )
        again = [sys.executable, "-c", program, str(cluster.root), "orders", "1", str(first), str(first + 1)]
        return subprocess.run(again, input=dumped.stdout, capture_output=True, check=False, text=True)

    done = copy(files[0], 0)
    assert done.stdout == "2 records\n", done.stderr
    assert "offset 2 has headers, or a value that is not text" in copy(files[1], 2).stderr
    delete = ["delete-records", "--bootstrap-server", str(cluster.root), "--offset-json-file", "/dev/stdin"]
    offsets = '{"version":1,"partitions":[{"topic":"orders","partition":1,"offset":4}]}'
    subprocess.run([sys.executable, "-m", "sparklog.cli", *delete], input=offsets, check=True, text=True)
    with LogReader(cluster.reopened()) as reader:
        read = [(record.offset, record.key, record.value) for record in reader.records("orders", 1, 4, 6)]
    assert read == [(4, b"k", b"first"), (5, b"k", None)]
