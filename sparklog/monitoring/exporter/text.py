"""Prometheus' text format, version 0.0.4.

    labels = Labels({"cluster": "eu"})
    sample_lines(TOPIC_FAMILIES, [(labels.of(_TOPIC, "orders"), (8, 512, 1, 0, 1))])

It is written here and not by a library's objects because a cluster has a hundred thousand samples: these take half a
second of a scrape, formatted text a twentieth. The tests read it back with the library.

Rules: pure. Label values are untrusted: every one goes through ``escape``.
Not for: which metrics there are (``families``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sparklog.monitoring.exporter.families import Family

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Value = int | float | None
"""A value of a sample, None if there is none."""

Row = tuple[str, Sequence[Value]]
"""The labels of samples as text, and their values, one for each family."""


def escape(value: str) -> str:
    """Return a label's value, fit to stand between quotes."""
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


class Labels:
    """Writes labels, behind ``constant`` ones that every sample has. Immutable, thread-safe."""

    def __init__(self, constant: Mapping[str, str]) -> None:
        self._constant = "".join(f'{name}="{escape(value)}",' for name, value in constant.items())

    def of(self, names: Sequence[str], *values: str) -> str:
        """Return the labels of a sample as text, in braces; an empty text if it has none."""
        own = ",".join(f'{name}="{escape(value)}"' for name, value in zip(names, values, strict=True))
        text = self._constant + own if own else self._constant[:-1]
        return f"{{{text}}}" if text else ""

    def of_partitions(self, names: Sequence[str], *values: str) -> str:
        """Return the labels of the partitions of a topic, up to the number, after which ``"}`` follows."""
        return f'{self.of(names, *values)[:-1]},partition="'


def sample_lines(families: Sequence[Family], rows: Iterable[Row]) -> tuple[str, ...]:
    """Return the lines of the samples of each family."""
    known = list(rows)
    return tuple(_lines_of(family.name, number, known) for number, family in enumerate(families))


def _lines_of(name: str, number: int, rows: Sequence[Row]) -> str:
    return "".join([f"{name}{labels} {value}\n" for labels, values in rows if (value := values[number]) is not None])


def with_header(family: Family, lines: str) -> str:
    """Return a family as it is scraped: its help, its type and its samples; an empty text if it has none."""
    if not lines:
        return ""
    return f"# HELP {family.name} {family.help}\n# TYPE {family.name} {family.kind}\n{lines}"


def histogram_lines(
    family: Family, labels: Labels, bounds: Sequence[float], counts: Sequence[int], total: float
) -> str:
    """Return the samples of a histogram; ``counts`` are those up to each bound and beyond the last, not yet summed."""
    names, rows, count = [*map(str, bounds), "+Inf"], [], 0
    for bound, number in zip(names, counts, strict=True):
        count += number
        rows.append(f"{family.name}_bucket{labels.of(('le',), bound)} {count}\n")
    rows.append(f"{family.name}_sum{labels.of(())} {total}\n{family.name}_count{labels.of(())} {count}\n")
    return "".join(rows)
