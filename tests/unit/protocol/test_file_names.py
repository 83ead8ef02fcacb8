"""Names of segment files: of Arrow's and of history, of topics with any name."""

from __future__ import annotations

import pytest

from sparklog.log.layout import segment_key
from sparklog.protocol.file_names import (
    NO_VERSION,
    begun_at,
    index_path,
    is_data_file,
    is_in_data_folder,
    log_path_of,
    root_of,
    topic_in,
)

TOPICS = ["orders", "tables", "a.b", "x-5", "_segments", "partition=1"]


@pytest.mark.parametrize("history", [False, True])
@pytest.mark.parametrize("topic", TOPICS)
def test_a_key_tells_its_topic_version_and_root(topic: str, history: bool) -> None:
    key = segment_key(topic, 3, 17, 42, "write-id", history)
    for path in (key, index_path(key)):
        assert log_path_of(path) == key
        assert begun_at(path) == 42
        assert topic_in(path) == topic
        assert is_data_file(path)
        assert is_in_data_folder(path)
    for root in ("/data/log", "s3://bucket", "/data/tables/log"):
        assert root_of(f"{root}/{key}".rpartition("/")[0]) == root
    assert root_of(key.rpartition("/")[0]) == ""


@pytest.mark.parametrize(
    "key",
    [
        "tables/foo-5/part-0.parquet",
        "tables/foo/_delta_log/x-1/y.parquet",
        "tables/foo/_delta_log/00000000000000000000.json",
        "exports-2024/00000000000000000007-v3-x.parquet",
        "tables/foo-5/00000000000000000007-v3-x.log",
        "tables/foo/_segments/partition=0/00000000000000000007-v3-x.log",
        "orders/00000000000000000007-v3-x.log",
        "meta/commits/00000000000000000007.json",
    ],
)
def test_files_of_others_are_no_data_files(key: str) -> None:
    assert not is_data_file(key)
    assert not is_in_data_folder(key)


def test_a_file_without_a_version_is_in_a_data_folder_only() -> None:
    for key in ("orders-0/notes.log", "tables/orders/_segments/partition=0/part-1.parquet"):
        assert is_in_data_folder(key)
        assert not is_data_file(key)
        assert begun_at(key) == NO_VERSION
