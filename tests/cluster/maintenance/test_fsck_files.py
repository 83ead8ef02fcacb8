"""fsck reports each kind of damage to data files exactly: kind, partition, offsets, path; a sound cluster has none."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparklog.format.index import decode_index
from sparklog.format.segment_writer import SegmentWriter
from sparklog.maintenance.fsck.kinds import ERROR, INFO, WARNING, Finding
from tests.cluster.maintenance.damaged_clusters import BATCH, DamagedCluster, index_of, kinds, only, records
from tests.sample import examples

CODECS = ["none", "lz4", "zstd", "gzip", "snappy"]


@pytest.fixture
def cluster(tmp_path: Path) -> DamagedCluster:
    return DamagedCluster(tmp_path)


@pytest.fixture
def replicated(tmp_path: Path) -> DamagedCluster:
    return DamagedCluster(tmp_path, brokers=2)


def position_of(finding: Finding) -> tuple[str, int, int, int, str]:
    return finding.topic, finding.partition, finding.start_offset, finding.end_offset, finding.path


@pytest.mark.parametrize("codec", CODECS)
def test_a_sound_cluster_has_no_findings(replicated: DamagedCluster, codec: str) -> None:
    for _ in range(3):
        replicated.append(partitions=(0, 1), codec=codec)
    report = replicated.report()
    assert report.findings == []
    assert (report.checked.files, report.checked.segments, report.checked.batches) == (6, 6, 36)


def test_every_byte_is_counted_once(cluster: DamagedCluster) -> None:
    path = cluster.append()
    size = sum(cluster.file(key).stat().st_size for key in (path, index_of(path)))
    assert cluster.report().checked.bytes == size


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_flipped_bit_anywhere_in_a_log_is_reported_with_the_affected_offsets(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cluster = DamagedCluster(tmp_path_factory.mktemp("flip"))
    cluster.append(partitions=(0, 1))
    path = cluster.append(partitions=(0, 1), codec=data.draw(st.sampled_from(CODECS)))
    index = decode_index(cluster.file(index_of(path)).read_bytes(), path)
    position = data.draw(st.integers(0, index.summary.log_length - 1))
    cluster.flip(path, position, data.draw(st.integers(0, 7)))
    finding = only(cluster.report())
    batch = next((n for n, entry in enumerate(index.entries) if entry.position <= position < entry.end), -1)
    if batch < 0:
        assert (finding.kind, finding.severity, finding.path) == ("damaged-file", WARNING, path)
        return
    start = 3 * BATCH + batch % 3 * BATCH
    assert (finding.kind, finding.severity, finding.batch) == ("damaged-batch", ERROR, batch)
    assert position_of(finding) == ("orders", batch // 3, start, start + BATCH, path)
    assert not finding.repairable


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_flipped_bit_anywhere_in_an_index_is_reported(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cluster = DamagedCluster(tmp_path_factory.mktemp("flip"))
    path = cluster.append()
    key = index_of(path)
    cluster.flip(key, data.draw(st.integers(0, cluster.file(key).stat().st_size - 1)), data.draw(st.integers(0, 7)))
    finding = only(cluster.report(), "damaged-index")
    assert position_of(finding) == ("orders", 0, 0, 3 * BATCH, key)
    assert (finding.severity, finding.repairable) == (WARNING, True)


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("kept", [0, 7, 300, 1000])
def test_a_truncated_log_is_reported_with_all_offsets_after_the_cut(
    cluster: DamagedCluster, kept: int, fast: bool
) -> None:
    path = cluster.append()
    index = decode_index(cluster.file(index_of(path)).read_bytes(), path)
    cluster.cut(path, kept)
    finding = only(cluster.report(fast), "damaged-file")
    intact = sum(entry.end <= kept for entry in index.entries)
    assert position_of(finding) == ("orders", 0, intact * BATCH, 3 * BATCH, path)
    assert finding.severity == ERROR
    assert "can still be read" not in finding.message


def test_a_log_of_several_partitions_that_ends_before_its_batches_is_an_error_of_each(cluster: DamagedCluster) -> None:
    path = cluster.append(partitions=(0, 1))
    cluster.cut(path, 0)
    assert [position_of(finding) for finding in cluster.report().findings] == [
        ("orders", number, 0, 3 * BATCH, path) for number in (0, 1)
    ]


def test_damage_around_the_batches_does_not_call_damaged_batches_readable(cluster: DamagedCluster) -> None:
    path = cluster.append()
    index = decode_index(cluster.file(index_of(path)).read_bytes(), path)
    cluster.flip(path, 1)
    cluster.flip(path, index.entries[1].position)
    findings = cluster.report().findings
    assert [finding.batch for finding in findings] == [1, -1]
    assert all("can still be read" not in finding.message for finding in findings)


def test_a_file_without_its_footer_loses_no_record(cluster: DamagedCluster) -> None:
    path = cluster.append()
    cluster.cut(path, cluster.file(path).stat().st_size - 1)
    finding = only(cluster.report(), "damaged-file")
    assert (finding.severity, finding.start_offset) == (WARNING, -1)
    assert len(cluster.values()) == 3 * BATCH


def test_a_missing_log_is_reported_for_every_partition_in_it(cluster: DamagedCluster) -> None:
    path = cluster.append(partitions=(0, 1))
    cluster.file(path).unlink()
    report = cluster.report()
    assert [position_of(finding) for finding in report.findings] == [
        ("orders", 0, 0, 3 * BATCH, path),
        ("orders", 1, 0, 3 * BATCH, path),
    ]
    assert kinds(report) == ["missing-log", "missing-log"]
    assert {finding.severity for finding in report.findings} == {ERROR}


def test_a_missing_index_is_reported(cluster: DamagedCluster) -> None:
    path = cluster.append()
    cluster.file(index_of(path)).unlink()
    finding = only(cluster.report(), "missing-index")
    assert position_of(finding) == ("orders", 0, 0, 3 * BATCH, index_of(path))
    assert (finding.severity, finding.repairable) == (ERROR, False)
    assert "a changed byte would go unnoticed" in finding.action


def test_an_index_of_another_file_is_reported(cluster: DamagedCluster) -> None:
    path, other = cluster.append(batches=3), cluster.append(batches=2)
    cluster.file(index_of(path)).write_bytes(cluster.file(index_of(other)).read_bytes())
    assert position_of(only(cluster.report(), "index-mismatch")) == ("orders", 0, 0, 3 * BATCH, index_of(path))


def test_a_file_replaced_by_another_one_is_reported(cluster: DamagedCluster) -> None:
    path, other = cluster.append(batches=3), cluster.append(batches=2)
    for key in (str, index_of):
        cluster.file(key(path)).write_bytes(cluster.file(key(other)).read_bytes())
    assert position_of(only(cluster.report(), "wrong-segment")) == ("orders", 0, 0, 3 * BATCH, path)


def test_damage_to_one_of_two_copies_is_a_warning_that_names_the_source_for_a_repair(
    replicated: DamagedCluster,
) -> None:
    path = replicated.append()
    replicated.flip(path, 700, broker=1)
    finding = only(replicated.report(), "damaged-batch")
    assert (finding.severity, finding.broker, finding.repairable) == (WARNING, 1, True)
    assert "broker 0" in finding.action


def test_damage_to_the_same_batch_of_both_copies_is_an_error(replicated: DamagedCluster) -> None:
    path = replicated.append()
    for broker in (0, 1):
        replicated.flip(path, 700, bit=broker, broker=broker)
    report = replicated.report()
    assert kinds(report) == ["damaged-batch"] * 2
    assert {finding.severity for finding in report.findings} == {ERROR}


def test_sound_copies_that_differ_are_reported(replicated: DamagedCluster) -> None:
    path = replicated.append()
    with replicated.file(path, 1).open("wb") as sink:
        writer = SegmentWriter(sink)
        for batch in range(3):
            writer.write(records("ORDERS", 0, batch * BATCH))
        replicated.file(index_of(path), 1).write_bytes(writer.finish())
    report = replicated.report()
    assert only(report, "replicas-differ").path == path


def test_a_broker_with_a_missing_location_is_reported_once(replicated: DamagedCluster) -> None:
    replicated.append()
    replicated.location(1).rename(replicated.folder / "elsewhere")
    finding = only(replicated.report(), "broker-offline")
    assert (finding.broker, finding.severity) == (1, WARNING)


def test_an_orphan_is_reported_as_a_note_only(cluster: DamagedCluster) -> None:
    path = cluster.append()
    orphan = path[:-8] + "xxxx.log"
    cluster.file(orphan).write_bytes(b"x")
    report = cluster.report()
    assert report.clean
    assert [(finding.kind, finding.severity, finding.path) for finding in report.findings] == [
        ("orphan-file", INFO, orphan)
    ]


def test_no_vacuum_is_advised_for_an_orphan_beside_files_that_are_lost(tmp_path: Path) -> None:
    """The locations were copied after a roll that the copied root does not know: the orphan has the lost records."""
    cluster = DamagedCluster(tmp_path, topics=("orders", "audit"))
    for topic in ("orders", "audit"):
        path = cluster.append(topic)
        cluster.file(path[:-8] + "xxxx.log").write_bytes(b"x")
    cluster.file(path).unlink()
    advice = {finding.path.split("-")[0]: finding.action for finding in cluster.report().of_kind("orphan-file")}
    assert "deletes it" in advice["orders"]
    assert "run no vacuum" in advice["audit"]


def test_a_fast_check_reads_no_batches_and_reports_missing_and_short_files(cluster: DamagedCluster) -> None:
    flipped, short = cluster.append(), cluster.append()
    cluster.flip(flipped, 700)
    cluster.cut(short, 1000)
    report = cluster.report(fast=True)
    assert [finding.path for finding in report.findings] == [short]
    assert report.checked.batches == 0


def test_a_check_reads_only_its_scope(tmp_path: Path) -> None:
    cluster = DamagedCluster(tmp_path, topics=("orders", "audit"))
    for topic in ("orders", "audit"):
        for partition in (0, 1):
            cluster.flip(cluster.append(topic, (partition,)), 700)
    report = cluster.check(topics=["audit"], partitions=[1]).report
    assert [finding.subject for finding in report.findings] == ["audit-1"]
