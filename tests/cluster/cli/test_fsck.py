"""``sparklog fsck``: exit codes, report, JSON, and repair from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparklog.errors import CorruptMetadataError
from sparklog.log.layout import FSCK_KEY
from sparklog.maintenance.fsck.check import check_cluster
from sparklog.maintenance.fsck.kept_report import keep_report, read_kept_report
from sparklog.maintenance.fsck.kinds import Checked, Finding, Repair
from tests.cluster.maintenance.damaged_clusters import DamagedCluster, index_of

from .conftest import Run


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DamagedCluster:
    cluster = DamagedCluster(tmp_path / "cluster", brokers=2)
    cluster.append(partitions=(0, 1))
    monkeypatch.setenv("SPARKLOG_BOOTSTRAP_SERVER", str(cluster.root))
    monkeypatch.delenv("SPARKLOG_DEBUG", raising=False)
    return cluster


def test_a_sound_cluster_exits_with_0_and_a_summary_of_the_checks(run: Run, cluster: DamagedCluster) -> None:
    result = run("fsck")
    assert result.code == 0
    assert result.err == ""
    assert result.lines[0] == f"Cluster {cluster.coordinator.state.cluster_id} at {cluster.root}, version 3"
    assert result.lines[1].startswith("Checked 4 commits, 0 checkpoints, 2 segments in 2 partitions, 2 copies of data")
    assert result.lines[-1] == "Clean."


def test_warnings_beside_errors_do_not_say_that_all_records_are_intact(run: Run, cluster: DamagedCluster) -> None:
    single, both = cluster.append(partitions=(0,)), cluster.append(partitions=(1,))
    for broker in (0, 1):
        cluster.flip(single, 700, broker=broker)
    cluster.flip(both, 700, broker=1)
    headings = [line for line in run("fsck").lines if line.isupper() or line.startswith(("ERRORS", "WARNINGS"))]
    assert [line.partition(":")[0] for line in headings] == ["ERRORS", "WARNINGS"]
    assert "intact" not in headings[1]


def test_damage_exits_with_1_and_is_reported_with_partition_offsets_and_remedy(
    run: Run, cluster: DamagedCluster
) -> None:
    path = cluster.append()
    cluster.flip(path, 700, broker=1)
    result = run("fsck")
    assert result.code == 1
    assert result.lines[3].startswith("WARNINGS: ")
    assert result.lines[4] == "  orders-0"
    assert result.lines[5].startswith("    damaged-batch, offsets 15 to 19: record batch 0: the checksum of its ")
    assert result.lines[6] == f"      {path} on broker 1"
    assert result.lines[7] == "      -> run `sparklog fsck --repair`, which copies it from broker 0"
    assert result.lines[-1] == "0 errors, 1 warning, 0 notes. 1 of them can be repaired with --repair."


def test_repeated_findings_are_summarized(run: Run, cluster: DamagedCluster) -> None:
    for _ in range(8):
        cluster.file(cluster.append()).unlink()
    result = run("fsck")
    assert sum("missing-log" in line for line in result.lines) == 6
    assert "    and 3 more of missing-log, in all of offsets 15 to 134 (--json lists them)" in result.lines


def test_json_has_every_field_of_its_structs(run: Run, cluster: DamagedCluster) -> None:
    path = cluster.append()
    cluster.flip(path, 700, broker=1)
    result = run("fsck", "--json")
    assert result.code == 1
    report = json.loads(result.out)
    assert report["clean"] is False
    assert report["counts"] == {"error": 0, "warning": 1, "info": 0}
    assert (report["version"], report["left"], report["repairs"]) == (4, None, [])
    assert set(report["checked"]) == set(Checked.__struct_fields__)
    [finding] = report["findings"]
    assert set(finding) == set(Finding.__struct_fields__)
    assert (finding["kind"], finding["topic"], finding["partition"]) == ("damaged-batch", "orders", 0)
    assert (finding["start_offset"], finding["end_offset"], finding["batch"]) == (15, 20, 0)


def test_a_successful_repair_exits_with_0(run: Run, cluster: DamagedCluster) -> None:
    path = cluster.append()
    cluster.flip(path, 700, broker=1)
    cluster.file(index_of(path), 0).unlink()
    dry = run("fsck", "--repair", "--dry-run")
    assert dry.code == 1
    assert f"  {path} on broker 1: would be assembled from broker 0" in dry.lines
    result = run("fsck", "--repair")
    assert result.code == 0
    assert f"  {path} on broker 1: assembled from broker 0" in result.lines
    assert result.lines[-1] == "Clean."
    assert run("fsck").code == 0


def test_irreparable_damage_exits_with_1_and_names_the_lost_offsets(run: Run, cluster: DamagedCluster) -> None:
    path = cluster.append()
    for broker in (0, 1):
        cluster.flip(path, 700, bit=broker, broker=broker)
    result = run("fsck", "--repair", "--json")
    assert result.code == 1
    report = json.loads(result.out)
    assert set(report["repairs"][0]) == set(Repair.__struct_fields__)
    assert report["repairs"][0]["why_not"] == "no copy has batch 0 (offsets 15 to 19 of orders-0)"
    assert len(report["left"]) == 2


def test_only_the_given_topic_and_partitions_are_checked(run: Run, cluster: DamagedCluster) -> None:
    cluster.flip(cluster.append(partitions=(1,)), 700)
    assert run("fsck", "--partitions", "0").code == 0
    assert run("fsck", "--topic", "orders", "--partitions", "1").code == 1


def test_fast_skips_the_record_batches(run: Run, cluster: DamagedCluster) -> None:
    path = cluster.append()
    cluster.flip(path, 700)
    assert run("fsck", "--fast").code == 0
    cluster.cut(path, 700)
    assert run("fsck", "--fast").code == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--topic", "nothing"], "topic 'nothing' does not exist"),
        (["--partitions", "x"], "must be a comma-separated list of numbers"),
        (["--topic", "orders", "--partitions", "7"], "has no partition 7"),
        (["--dry-run"], "--dry-run requires --repair"),
        (["--end-at", "0"], "--end-at requires --repair"),
        (["--repair", "--fast"], "can't be used with"),
        (["--workers", "2", "--distributed"], "can't be used with"),
        (["--nonsense"], "is not a recognized option"),
    ],
)
def test_usage_errors_exit_with_2(run: Run, cluster: DamagedCluster, arguments: list[str], message: str) -> None:
    result = run("fsck", *arguments)
    assert result.code == 2
    assert message in result.err
    assert result.out == ""


def test_a_root_without_a_cluster_exits_with_2(run: Run, tmp_path: Path) -> None:
    assert run("fsck", "--bootstrap-server", str(tmp_path / "nothing")).code == 2


def test_progress_is_printed_in_commits_and_bytes(run: Run, cluster: DamagedCluster) -> None:
    result = run("fsck", "--progress")
    assert "fsck: 4 of 4 commits (100 %)" in result.err
    assert "kB (100 %)" in result.err


def test_several_processes_report_the_same_findings(run: Run, cluster: DamagedCluster) -> None:
    cluster.flip(cluster.append(), 700)
    assert run("fsck", "--workers", "2").out == run("fsck").out


def test_a_report_is_kept_only_when_asked_for_and_is_no_orphan(run: Run, cluster: DamagedCluster) -> None:
    run("fsck")
    assert read_kept_report(cluster.store) is None
    path = cluster.append()
    cluster.flip(path, 700, broker=1)
    assert run("fsck", "--keep-report").code == 1
    kept = read_kept_report(cluster.store)
    assert kept is not None
    assert (kept.cluster_id, kept.version) == (cluster.coordinator.state.cluster_id, cluster.coordinator.state.version)
    assert (kept.clean, kept.counts) == (False, {"error": 0, "warning": 1, "info": 0})
    assert [finding.kind for finding in kept.findings] == ["damaged-batch"]
    assert run("fsck", "--repair", "--keep-report").code == 0
    repaired = read_kept_report(cluster.store)
    assert repaired is not None
    assert (repaired.clean, repaired.findings, repaired.repairs) == (True, [], 1)
    assert run("fsck").lines[-1] == "Clean."
    assert "fsck" not in run("vacuum", "--dry-run").out


def test_a_report_of_a_part_says_which(run: Run, cluster: DamagedCluster) -> None:
    run("fsck", "--fast", "--topic", "orders", "--partitions", "1", "--keep-report")
    kept = read_kept_report(cluster.store)
    assert kept is not None
    assert (kept.fast, kept.topics, kept.partitions, kept.clean) == (True, ["orders"], [1], True)


def test_a_long_report_is_cut_and_its_counts_are_not(run: Run, cluster: DamagedCluster) -> None:
    findings = [
        Finding(kind="missing-log", severity="error", message=f"{number}\ud800" + "x" * 5000, path="\x1b")
        for number in range(500)
    ]
    check = check_cluster(cluster.store)
    check.report.findings = findings
    keep_report(check, 1, 2.0)
    kept = read_kept_report(cluster.store)
    assert kept is not None
    assert (len(kept.findings), kept.counts["error"]) == (200, 500)
    assert all(len(each.message) == 1000 and each.path == "\\x1b" for each in kept.findings)


def test_a_check_of_a_root_that_cannot_be_written_says_that_its_report_was_not_kept(
    run: Run, cluster: DamagedCluster
) -> None:
    (cluster.root / FSCK_KEY).mkdir()
    result = run("fsck", "--keep-report")
    assert result.code == 0
    assert result.lines[-1] == "Clean."
    assert "the report was not kept in the cluster: " in result.err


def test_a_damaged_report_is_replaced_by_the_next(run: Run, cluster: DamagedCluster) -> None:
    cluster.store.put(FSCK_KEY, b"[" * 10_000)
    with pytest.raises(CorruptMetadataError, match="--keep-report` replaces it"):
        read_kept_report(cluster.store)
    assert run("fsck", "--keep-report").lines[-1] == "Clean."
    assert read_kept_report(cluster.store) is not None
    assert run("fsck", "--repair", "--dry-run", "--keep-report").code == 2
