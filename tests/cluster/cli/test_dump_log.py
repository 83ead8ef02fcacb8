"""kafka-dump-log: the output for sound files, and detection of every damage."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from sparklog.cli.commands.storage.segment_dump import name_number
from sparklog.coordinator import Coordinator, create_cluster
from sparklog.coordinator.topic_deletion import delete_topic
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.segments.roll import roll
from sparklog.protocol.file_names import index_path
from sparklog.testing.records import Record, append_records
from tests.cluster.log.rewriting import rewrite
from tests.cluster.maintenance.logs import Written, append, live
from tests.sample import chosen

from .conftest import Run, change_partition

STAMP = 1_690_000_000_000
RECORDS = [
    Record(b"k1", b"v1", [("h", b"x"), ("h", None)], timestamp_us=STAMP * 1000),
    Record(b"k2", None, timestamp_us=(STAMP + 5) * 1000),
    Record(None, "grün".encode(), timestamp_us=(STAMP + 2) * 1000),
]


def segment_of(cluster: Coordinator, topic: str = "t", newest: int = -1) -> str:
    """The path of a segment's .log, the newest by default."""
    segments = cluster.segments(topic, cluster.refresh())
    segment = max((s for p in range(len(cluster.state.topic(topic).partitions)) for s in segments.partition(p)),
                key=lambda segment: segment.version)  # fmt: skip
    return f"{cluster.store.root}/{segment.path}"


@pytest.fixture
def log(cluster: Coordinator) -> str:
    """A segment of three records with headers, a tombstone and a null key."""
    cluster.create_topic("t")
    append_records(cluster, "t", RECORDS)
    return segment_of(cluster)


def batch_line(run: Run, log: str, *flags: str) -> dict[str, str]:
    """The fields of the first batch line."""
    (line, *_) = [line for line in run("dump-log", "--files", log, *flags).lines if line.startswith("baseOffset: ")]
    return dict(re.findall(r"(\w+): (\S+)", line))


def test_batch_line_has_kafkas_format(run: Run, log: str) -> None:
    result = run("dump-log", "--files", log)
    assert (result.code, result.err) == (0, "")
    head, start, line = result.lines
    assert head == f"Dumping {log}"
    assert start == "Log starting offset: 0"
    assert re.sub(r"(position|size|crc): \d+", r"\1: N", line) == (
        "baseOffset: 0 lastOffset: 2 count: 3 baseSequence: -1 lastSequence: -1 producerId: -1 producerEpoch: -1 "
        "partitionLeaderEpoch: 0 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty "
        f"position: N CreateTime: {STAMP + 5} size: N magic: 1 compresscodec: none crc: N isvalid: true"
    )


def test_records_are_printed_with_and_without_their_contents(run: Run, log: str) -> None:
    deep = run("dump-log", "--files", log, "--deep-iteration").lines[3:]
    full = run("dump-log", "--files", log, "--print-data-log").lines[3:]
    bare = run("dump-log", "--files", log, "--print-data-log", "--skip-record-metadata").lines[3:]
    assert deep == [
        f"| offset: 0 CreateTime: {STAMP} keySize: 2 valueSize: 2 sequence: -1 headerKeys: [h,h]",
        f"| offset: 1 CreateTime: {STAMP + 5} keySize: 2 valueSize: -1 sequence: -1 headerKeys: []",
        f"| offset: 2 CreateTime: {STAMP + 2} keySize: -1 valueSize: 5 sequence: -1 headerKeys: []",
    ]
    contents = ["key: k1 payload: v1", "key: k2", "payload: grün"]
    assert full == [f"{line} {content}" for line, content in zip(deep, contents, strict=True)]
    assert bare == [f"| {content}" for content in contents]


def test_decoders_have_kafkas_names_and_enable_printing(run: Run, cluster: Coordinator) -> None:
    append_records(cluster, "t", [Record((7).to_bytes(8, "big"), (-1).to_bytes(4, "big", signed=True))])
    flags = ["--key-decoder-class", "LongDecoder", "--value-decoder-class", "kafka.serializer.IntegerDecoder"]
    assert run("dump-log", "--files", segment_of(cluster), *flags).lines[-1].endswith(" key: 7 payload: -1")
    wrong = run("dump-log", "--files", segment_of(cluster), "--value-decoder-class", "LongDecoder")
    assert wrong.code == 0
    assert "Size of data received by LongDeserializer is not 8: it has 4 bytes" in wrong.lines[-1]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_printed_by_its_name(run: Run, cluster: Coordinator, codec: str) -> None:
    append_records(cluster, "t", [Record(b"k", b"v" * 500)] * 10, compression=codec)
    log = segment_of(cluster)
    fields = batch_line(run, log, "--print-data-log")
    assert (fields["compresscodec"], fields["count"], fields["isvalid"]) == (codec, "10", "true")
    assert run("dump-log", "--files", f"{log},{index_path(log)}").code == 0


def test_index_entries_have_the_offsets_and_positions_of_the_log(run: Run, cluster: Coordinator) -> None:
    cluster.create_topic("t")
    append_records(cluster, "t", [Record(value=b"x" * 100_000)] * 30)
    log = segment_of(cluster)
    batches = [line for line in run("dump-log", "--files", log).lines if line.startswith("baseOffset: ")]
    expected = [dict(re.findall(r"(baseOffset|position): (\d+)", line)) for line in batches]
    assert len(expected) == 3
    assert run("dump-log", "--files", index_path(log)) == (
        0,
        "".join(
            [
                f"Dumping {index_path(log)}\n",
                *(f"offset: {e['baseOffset']} position: {e['position']}\n" for e in expected),
            ]
        ),
        "",
    )


def test_offsets_come_from_the_file_name_or_with_a_cluster_from_the_commit_log(run: Run, root: str) -> None:
    first = create_cluster(root + "2")
    first.create_topic("t", partitions=2)
    append_records(first, "t", [Record(value=b"v", partition=0)] * 2)
    append_records(first, "t", [Record(value=b"w", partition=1)] * 3 + [Record(value=b"w", partition=0)] * 4)
    log = segment_of(first)
    second = run("dump-log", "--files", log, "--bootstrap-server", first.store.root)
    assert name_number(log) == 2
    alone = [dict(re.findall(r"(\w+): (\S+)", line)) for line in run("dump-log", "--files", log).lines[2:]]
    assert [(fields["baseOffset"], fields["count"]) for fields in alone] == [("2", "4"), ("6", "3")]
    assert second.lines[1:4] == [
        "Log starting offset: 2",
        f"Commit log: t-0 has offsets 2 to 5 in batches 0 to 0 of this file (commit {first.state.version})",
        f"Commit log: t-1 has offsets 0 to 2 in batches 1 to 1 of this file (commit {first.state.version})",
    ]
    placed = [dict(re.findall(r"(\w+): (\S+)", line)) for line in second.lines[4:]]
    assert [fields["baseOffset"] for fields in placed] == ["2", "0"]


def test_log_append_time_is_read_from_the_commit_log(run: Run, cluster: Coordinator) -> None:
    cluster.create_topic("t", configs={"message.timestamp.type": "LogAppendTime"})
    append_records(cluster, "t", [Record(value=b"v", timestamp_us=1000)])
    log = segment_of(cluster)
    appended = str(cluster.refresh().timestamp_ms)
    assert batch_line(run, log, "--bootstrap-server", cluster.store.root)["LogAppendTime"] == appended
    assert batch_line(run, log)["LogAppendTime"] == appended, (
        "the root is found above the file without --bootstrap-server"
    )
    records = run("dump-log", "--files", log, "--print-data-log").lines[3:]
    assert records[0].startswith(f"| offset: 0 LogAppendTime: {appended} ")


def test_without_its_cluster_a_file_shows_the_create_time(run: Run, cluster: Coordinator) -> None:
    cluster.create_topic("t", configs={"message.timestamp.type": "LogAppendTime"})
    append_records(cluster, "t", [Record(value=b"v", timestamp_us=1000)])
    log = segment_of(cluster)
    for path in ("cluster.json", "meta"):
        metadata = Path(cluster.store.root) / path
        shutil.rmtree(metadata) if metadata.is_dir() else metadata.unlink()
    assert batch_line(run, log)["CreateTime"] == "1"


def test_a_file_that_no_commit_names_is_reported_as_an_orphan(run: Run, cluster: Coordinator, log: str) -> None:
    delete_topic(cluster, "t")
    result = run("dump-log", "--files", log, "--bootstrap-server", cluster.store.root)
    assert "does not name this file: none of it is visible to readers" in result.out


def test_several_files_are_dumped_in_order_and_unknown_ones_are_reported(run: Run, log: str) -> None:
    result = run("dump-log", "--files", f"{log}, {index_path(log)},notes.txt")
    assert [line for line in result.lines if line.startswith("Dumping")] == [
        f"Dumping {log}",
        f"Dumping {index_path(log)}",
        "Dumping notes.txt",
    ]
    assert (result.code, result.err) == (
        0,
        "Ignoring unknown file notes.txt: its name does not end in .log, .parquet or .index\n",
    )
    assert run("dump-log", "--files", "notes.txt").code == 1


def test_reading_stops_after_max_bytes(run: Run, cluster: Coordinator) -> None:
    append_records(cluster, "t", [Record(value=b"x" * 100_000)] * 30)
    log = segment_of(cluster)
    for limit, batches in ((1, 1), (1_200_000, 2), (10_000_000, 3)):
        lines = run("dump-log", "--files", log, "--max-bytes", str(limit)).lines
        assert sum(line.startswith("baseOffset: ") for line in lines) == batches


def test_relative_paths_and_urls_are_dumped(run: Run, log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("dump-log", "--files", f"file://{log}").code == 0
    monkeypatch.chdir(Path(log).parent)
    assert run("dump-log", "--files", Path(log).name).code == 0


# --- damage


def test_a_flipped_bit_is_reported_with_its_batch_and_both_checksums(run: Run, log: str) -> None:
    flip(log, Path(log).read_bytes().index(b"v1"), 0)
    result = run("dump-log", "--files", log, "--print-data-log")
    assert result.code == 1
    assert result.lines[2].endswith("isvalid: false")
    assert not [line for line in result.lines if line.startswith("|")]
    assert re.search(
        rf"{re.escape(log)}: record batch 0 is damaged: the checksum .*0x[0-9a-f]{{8}}.*0x[0-9a-f]{{8}}", result.err
    )
    index = run("dump-log", "--files", index_path(log))
    assert index.code == 1
    assert re.search(r"Mismatches in :.*\.index\n  Index crc: \d+, log crc: \d+ \(batch 0\)\n", index.err)


def test_batches_after_a_damaged_one_are_still_printed(run: Run, cluster: Coordinator) -> None:
    append_records(cluster, "t", [Record(value=b"x" * 100_000)] * 30)
    log = segment_of(cluster)
    position = int(batch_line(run, log)["position"])
    flip(log, position + 4, 6)  # the length of the first batch's metadata
    result = run("dump-log", "--files", log)
    assert result.code == 1
    valid = [line.rpartition(" ")[2] for line in result.lines if line.startswith("baseOffset: ")]
    assert valid == ["false", "true", "true"]


def flip(path: str, position: int, bit: int) -> None:
    data = bytearray(Path(path).read_bytes())
    data[position] ^= 1 << bit
    Path(path).write_bytes(data)


@pytest.mark.sampled
@pytest.mark.parametrize("codec", ["none", "gzip", "zstd"])
def test_every_flipped_bit_of_a_log_is_detected_with_log_and_index(run: Run, cluster: Coordinator, codec: str) -> None:
    append_records(cluster, "t", RECORDS, compression=codec)
    log = segment_of(cluster)
    for position in chosen(range(len(Path(log).read_bytes()))):
        flip(log, position, position % 8)
        assert run("dump-log", "--files", log).code == 1, position
        assert run("dump-log", "--files", index_path(log), "--verify-index-only").code == 1, position
        flip(log, position, position % 8)
    assert run("dump-log", "--files", log).code == 0


@pytest.mark.sampled
def test_every_flipped_bit_of_an_index_is_detected(run: Run, log: str) -> None:
    index = index_path(log)
    for position in chosen(range(len(Path(index).read_bytes()))):
        flip(index, position, position % 8)
        result = run("dump-log", "--files", index)
        assert (result.code, "Traceback" in result.err) == (1, False), position
        assert index in result.err
        flip(index, position, position % 8)


def test_every_truncation_is_detected(run: Run, log: str) -> None:
    for path in (log, index_path(log)):
        data = Path(path).read_bytes()
        for length in range(0, len(data), 7):
            Path(path).write_bytes(data[:length])
            result = run("dump-log", "--files", path)
            assert (result.code, "Traceback" in result.err, "unexpected" in result.err) == (1, False, False), length
        Path(path).write_bytes(data)


def test_bytes_after_the_end_are_counted(run: Run, log: str) -> None:
    with open(log, "ab") as file:
        file.write(b"12345")
    result = run("dump-log", "--files", log)
    assert result.code == 1
    assert result.lines[-1] == f"Found 5 invalid bytes at the end of {Path(log).name}"


def test_a_log_without_its_index_is_printed_with_a_warning(run: Run, log: str) -> None:
    Path(index_path(log)).unlink()
    result = run("dump-log", "--files", log, "--print-data-log")
    assert result.code == 0
    assert "is missing: checksums cannot be verified" in result.err
    assert result.lines[2].startswith("baseOffset: 0 lastOffset: 2 count: 3 ")
    assert result.lines[3].endswith("key: k1 payload: v1")


def test_without_its_index_a_batch_still_has_the_leader_epoch_of_the_commit_log(run: Run, cluster: Coordinator) -> None:
    cluster.create_topic("t")
    change_partition(cluster, "t", 0, leader_epoch=3)
    append_records(cluster, "t", RECORDS)
    log = segment_of(cluster)
    Path(index_path(log)).unlink()
    assert batch_line(run, log, "--bootstrap-server", cluster.store.root)["partitionLeaderEpoch"] == "3"
    assert batch_line(run, log)["partitionLeaderEpoch"] == "0"


def test_index_of_another_log_is_a_mismatch(run: Run, cluster: Coordinator) -> None:
    cluster.create_topic("t")
    append_records(cluster, "t", [Record(value=b"x" * 100_000)] * 30)
    log = segment_of(cluster)
    append_records(cluster, "t", [Record(value=b"x" * 100_000)] * 12)
    Path(index_path(log)).write_bytes(Path(index_path(segment_of(cluster))).read_bytes())
    result = run("dump-log", "--files", index_path(log))
    assert result.code == 1
    assert "Mismatches in :" in result.err
    assert re.search(r"^  Index offset: -1, log offset: \d+$", result.err, re.M)


def test_index_checks_of_sound_files_print_no_errors(run: Run, log: str) -> None:
    index = index_path(log)
    assert run("dump-log", "--files", index, "--verify-index-only") == (0, f"Dumping {index}\n", "")
    assert run("dump-log", "--files", index, "--index-sanity-check") == (
        0,
        f"Dumping {index}\n{index} passed sanity check.\n",
        "",
    )


@pytest.mark.parametrize("content", [b"", b"\x00", b"ARROW1\x00\x00", b"ARROW1\x00\x00" + b"\xff" * 64, b"hello" * 100])
def test_a_file_that_is_not_a_segment_is_reported(run: Run, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "00000000000000000000-x.log"
    path.write_bytes(content)
    result = run("dump-log", "--files", str(path))
    assert result.code == 1
    assert "Traceback" not in result.err
    assert str(path) in result.err


@pytest.mark.parametrize("name", ["nope.log", "nope.index", "../nope.log", "a\x00.log"])
def test_a_missing_file_is_named(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("dump-log", "--files", name)
    assert (result.code, "Traceback" in result.err) == (1, False)
    assert result.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], 'Missing required argument "[files]"'),
        (["--files", "a.log,,b.log"], "invalid --files 'a.log,,b.log': contains an empty name"),
        (["--files", "a.log", "--max-bytes", "x"], "argument --max-bytes: invalid int value: 'x'"),
    ],
)
def test_usage_errors_are_reported_and_exit_with_1(run: Run, arguments: list[str], message: str) -> None:
    assert run("dump-log", *arguments) == (1, "", f"{message}\n`sparklog dump-log --help` lists the options.\n")


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("orders-0/00000000000000170410-AbC.log", 170410),
        ("00000000000000000042.log", 42),
        ("s3://bucket/7/x.log", 0),
        ("-1.log", 0),
        ("9" * 40 + ".log", 0),
    ],
)
def test_base_offset_is_parsed_from_the_file_name(name: str, number: int) -> None:
    assert name_number(name) == number


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_records_of_a_file_with_gaps_keep_their_offsets(run: Run, cluster: Coordinator, codec: str) -> None:
    cluster.create_topic("t")
    append_records(cluster, "t", [Record(value=b"gone")] * 4)
    append_records(cluster, "t", [Record(value=b"%d" % n, timestamp_us=STAMP * 1000) for n in range(8)])
    rewrite(cluster, 1, 1, keep={5, 8, 9, 11}.__contains__, codec=codec)
    log = segment_of(cluster)
    for flags in ([], ["--bootstrap-server", cluster.store.root]):
        result = run("dump-log", "--files", log, "--print-data-log", *flags)
        assert (result.code, result.err) == (0, "")
        batches = [dict(re.findall(r"(\w+): (\d+)", line)) for line in result.lines if line.startswith("baseOffset: ")]
        assert [(b["baseOffset"], b["lastOffset"], b["count"]) for b in batches] == [("5", "9", "3"), ("11", "11", "1")]
        records = [re.findall(r"offset: (\d+).*payload: (\d)", line)[0] for line in result.lines if line[0] == "|"]
        assert records == [("5", "1"), ("8", "4"), ("9", "5"), ("11", "7")]
    assert "has 4 records of offsets 4 to 11 in batches 0 to 1" in result.out
    listed = run("dump-log", "--files", index_path(log))
    assert [line.split()[1] for line in listed.lines[1:]] == ["5", "11"]


def test_a_file_with_gaps_is_readable_without_its_index(run: Run, cluster: Coordinator) -> None:
    cluster.create_topic("t")
    append_records(cluster, "t", [Record(value=b"%d" % n) for n in range(8)])
    rewrite(cluster, keep={1, 6}.__contains__)
    log = segment_of(cluster)
    Path(index_path(log)).unlink()
    lines = run("dump-log", "--files", log, "--print-data-log").lines
    assert [re.findall(r"offset: (\d+)", line)[0] for line in lines if line[0] == "|"] == ["1", "6"]


class History:
    """A topic with one history segment, and the active one."""

    def __init__(self, root: str) -> None:
        coordinator = create_cluster(root)
        coordinator.create_topic("t", configs={"history.format": "delta", "segment.ms": "60000"})
        rows = [Written(key=b"k", value=b"v%d" % number, minute=number, headers=[("h", b"x")]) for number in range(3)]
        append(coordinator, "t", rows)
        append(coordinator, "t", [Written(minute=60)])
        roll(coordinator, InProcess())
        self.segment = live(coordinator, "t")[0]
        self.path = Path(root, self.segment.path)
        self.index = Path(root, self.segment.index_path)


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(str(tmp_path / "root"))


def test_a_history_segment_is_printed_as_any_other(run: Run, history: History) -> None:
    result = run("dump-log", "--files", f"{history.path},{history.index}", "--print-data-log")
    assert result.code == 0, result.err
    assert "baseOffset: 0 lastOffset: 2 count: 3" in result.out
    assert "payload: v2" in result.out
    assert f"Dumping {history.index}" in result.out
    assert result.err == ""


def test_a_damaged_row_group_is_described_and_the_others_are_printed(run: Run, history: History) -> None:
    data = bytearray(history.path.read_bytes())
    data[8] ^= 1
    history.path.write_bytes(data)
    result = run("dump-log", "--files", str(history.path))
    assert result.code == 1
    assert "the checksum of its key" in result.err


def test_a_history_segment_without_its_index_is_refused_with_the_reason(run: Run, history: History) -> None:
    history.index.unlink()
    result = run("dump-log", "--files", str(history.path))
    assert result.code == 1
    assert "it is a Parquet file, of which only the index says where row groups end" in result.err


def test_a_file_whose_name_is_not_utf8_is_refused_with_the_byte(run: Run, tmp_path: Path) -> None:
    result = run("dump-log", "--files", f"{tmp_path}/\udcff.log")
    assert result.code == 1
    assert result.err.startswith(f"--files '{tmp_path}/\\udcff.log': the byte 0xff of the file's name is not UTF-8")


def test_a_file_in_a_folder_whose_name_is_not_utf8_is_printed(run: Run, history: History, tmp_path: Path) -> None:
    folder = tmp_path / "\udcff"
    history.path.parent.rename(folder)
    result = run("dump-log", "--files", f"{folder}/{history.path.name}", "--print-data-log")
    assert (result.code, result.err) == (0, "")
    assert "payload: v2" in result.out
