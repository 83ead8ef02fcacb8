"""Plots of lag, throughput and segments, and tables as a notebook shows them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog.client.system import System
from sparklog.errors import InvalidConfigurationError, UnknownTopicOrPartitionError
from sparklog.protocol.commits import CommitOffsets, CommittedOffset
from sparklog.protocol.decide.decision import Decision
from sparklog.testing.clusters import Cluster, cluster
from sparklog.testing.records import Record, append_records

pytest.importorskip("matplotlib", reason="matplotlib comes with the extra plot")

# matplotlib 3.8 uses names that newer versions of pyparsing deprecate
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:matplotlib")

EVIL = '<img src=x onerror="alert(1)">\x1b'


@pytest.fixture(scope="module")
def log() -> Iterator[Cluster]:
    """A cluster with 12 topics, and a group that is ``number`` records behind in each."""
    with cluster(topics={f"topic-{number:02}": 2 for number in range(1, 13)}) as created:
        offsets = []
        for number in range(1, 13):
            topic = f"topic-{number:02}"
            append_records(created.coordinator, topic, [Record(value=b"v" * 100, partition=0)] * number)
            topic_id = created.coordinator.state.topic(topic).topic_id
            offsets.append(CommittedOffset(topic=topic, topic_id=topic_id, partition=0, offset=0, metadata=EVIL))
        created.coordinator.submit(lambda _: Decision([CommitOffsets(group="_a$b$c", offsets=offsets)], None))
        yield created


class Rows(System):
    """A system table that has these rows."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows

    def read(self, *_: object, **__: object) -> pa.Table:
        return self._rows


def legend(axes: Any) -> tuple[list[Any], list[str]]:
    handles, labels = axes.get_legend_handles_labels()
    return handles, labels


def lines(axes: Any) -> dict[str, float]:
    """Return the last value of each line by its label in the legend."""
    handles, labels = legend(axes)
    return {label: handle.get_ydata()[-1] for handle, label in zip(handles, labels, strict=True)}


def test_lag_has_a_line_for_each_of_the_topics_that_are_the_furthest_behind(log: Cluster) -> None:
    figure = sparklog.plot.lag(log.bootstrap_servers, "_a$b$c", since="1h")
    records, seconds = figure.axes
    assert lines(records) == {**{f"topic-{number:02}": number for number in range(3, 13)}, "2 others": 3}
    assert lines(seconds).keys() == lines(records).keys()
    assert (records.get_ylabel(), seconds.get_ylabel(), seconds.get_xlabel()) == (
        "records behind",
        "seconds behind",
        "UTC",
    )


def test_lag_of_one_topic_is_one_line(log: Cluster) -> None:
    figure = sparklog.plot.lag(sparklog.open_cluster(log.bootstrap_servers), "_a$b$c", since="10m", topic="topic-07")
    assert lines(figure.axes[0]) == {"topic-07": 7}


def test_lag_of_unknown_age_is_left_out_of_the_seconds_whatever_partition_it_is_of() -> None:
    columns = {
        "timestamp": pa.array([0, 0, 0, 0, 0], pa.timestamp("ms", "UTC")),
        "topic": ["first", "first", "last", "last", "known"],
        "lag": [1, 1, 1, 1, 1],
        "lag_seconds": [None, 7.0, 7.0, None, 7.0],
    }
    seconds = sparklog.plot.lag(Rows(pa.table(columns)), "billing", since="1h").axes[1]
    assert {name: value for name, value in lines(seconds).items() if value == value} == {"known": 7.0}


def test_throughput_adds_up_the_minutes(log: Cluster) -> None:
    figure = sparklog.plot.throughput(sparklog.system(log.bootstrap_servers), since="10m")
    records, sizes = figure.axes
    handles, labels = legend(records)
    totals = {label: sum(handle.get_ydata()) * 60 for handle, label in zip(handles, labels, strict=True)}
    assert totals == pytest.approx({**{f"topic-{number:02}": number for number in range(3, 13)}, "2 others": 3})
    assert 11 <= len(handles[0].get_ydata()) <= 12, "minutes without records are 0"
    assert sizes.get_ylabel() == "bytes/s"


def test_throughput_over_a_long_time_adds_up_several_minutes_and_has_the_unit_that_fits(log: Cluster) -> None:
    append_records(log.coordinator, "topic-01", [Record(value=b"v" * 10_000, partition=0)] * 200)
    records, sizes = sparklog.plot.throughput(log.bootstrap_servers, "topic-01", since="8h").axes
    (line,), _ = legend(records)
    assert len(line.get_ydata()) <= 242
    assert sum(line.get_ydata()) * 120 == pytest.approx(201)
    assert sizes.get_ylabel() == "KiB/s"
    assert 15 < max(legend(sizes)[0][0].get_ydata()) < 20


def test_segments_are_bars_from_offset_to_offset(log: Cluster) -> None:
    (axes,) = sparklog.plot.segments(log.bootstrap_servers, "topic-12").axes
    (bars,) = axes.collections
    path: Any
    (path,) = bars.get_paths()
    assert (path.vertices[:, 0].min(), path.vertices[:, 0].max()) == (0, 12)
    assert lines_of_legend(axes) == ["open"]


def lines_of_legend(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_a_figure_is_shown_by_a_notebook_without_pyplot(log: Cluster) -> None:
    figure: Any
    for figure in (
        sparklog.plot.lag(log.bootstrap_servers, "_a$b$c", since="1h"),
        sparklog.plot.lag(log.bootstrap_servers, "nobody", since="1h"),
        sparklog.plot.throughput(log.bootstrap_servers, "topic-01"),
        sparklog.plot.segments(log.bootstrap_servers, "topic-01"),
    ):
        assert figure._repr_png_().startswith(b"\x89PNG")
    assert "matplotlib.pyplot" not in sys.modules or "pyplot" not in repr(figure.canvas)


def test_mistakes_are_named(log: Cluster) -> None:
    with pytest.raises(InvalidConfigurationError, match="invalid since '1 hour'"):
        sparklog.plot.lag(log.bootstrap_servers, "g", since="1 hour")
    with pytest.raises(InvalidConfigurationError, match="must be before until"):
        sparklog.plot.throughput(log.bootstrap_servers, since="1h", until="2h")
    with pytest.raises(UnknownTopicOrPartitionError, match="payments"):
        sparklog.plot.segments(log.bootstrap_servers, "payments")


def test_matplotlib_is_loaded_by_the_first_call_and_named_if_it_is_missing() -> None:
    code = """
import sys
import sparklog
sparklog.plot.lag
print("matplotlib" in sys.modules)
sys.modules["matplotlib"] = None
import sparklog.testing
with sparklog.testing.cluster(topics={"orders": 1}) as c:
    try:
        sparklog.plot.segments(c.bootstrap_servers, "orders")
    except ModuleNotFoundError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "False",
        "sparklog.plot needs matplotlib, which is not installed: pip install 'sparklog[plot]'",
    ]


# --- tables


def test_a_system_lists_its_tables_as_html(log: Cluster) -> None:
    shown = sparklog.system(log.bootstrap_servers)._repr_html_()
    assert shown.count("<table>") == 2
    assert "<td" in shown
    assert ">lag<" in shown


def test_a_table_shows_its_first_rows_as_text_and_html(log: Cluster) -> None:
    view = sparklog.system(log.bootstrap_servers).show("appends", limit=3, topic="topic-12")
    assert len(view.table) == 1
    assert repr(view).splitlines()[0].split()[:3] == ["version", "timestamp", "topic"]
    many = sparklog.system(log.bootstrap_servers).show("topics", limit=3)
    assert len(repr(many).splitlines()) == 5
    assert "… and 9 more rows" in repr(many)
    assert many._repr_html_().count("<tr>") == 4
    with pytest.raises(InvalidConfigurationError, match="invalid limit 0"):
        sparklog.system(log.bootstrap_servers).show("topics", limit=0)
    with pytest.raises(InvalidConfigurationError, match="did you mean topics"):
        sparklog.system(log.bootstrap_servers).show("topic")


def test_names_of_strangers_are_escaped_in_tables(log: Cluster) -> None:
    view = sparklog.system(log.bootstrap_servers).show("offsets")
    assert "<img" not in view._repr_html_()
    assert "\x1b" not in repr(view) + view._repr_html_()
