"""The report of the last check that ``sparklog fsck --keep-report`` left in the cluster, for people who look later.

    meta/fsck.json    {"format":1,"cluster_id":"…","time_ms":1790000000000,"seconds":12.5,"version":812,…}

Nothing depends on it: it is replaced by the next one, may be deleted, and is no part of a backup. A large report is cut
(``MAX_FINDINGS``); the counts are complete.

Not for: the report of a command (``report``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from sparklog.errors import CorruptMetadataError, InvalidRequestError
from sparklog.log.layout import FSCK_KEY
from sparklog.log.stored_json import read_json
from sparklog.maintenance.fsck.kinds import NEWER_VERSION, Checked, Finding, counts, in_order
from sparklog.store.base import Store
from sparklog.types import printable

if TYPE_CHECKING:
    from sparklog.maintenance.fsck.check import Check

FORMAT = 1
MAX_FINDINGS = 200
"""Findings that are kept, the worst first."""
_MAX_TEXT = 1000
_MAX_BYTES = 4 * 1024 * 1024
_MAX_NUMBER = 2**62
_REMEDY = "`sparklog fsck --keep-report` replaces it"


class KeptReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a check found, and when. Fields of later versions are ignored unless ``format`` grew.

    ``time_ms`` is when it began, ``seconds`` how long it took; ``topics`` and ``partitions`` are its scope, empty for
    all. After a repair, of which ``repairs`` were done, the findings are those that are left. ``counts`` are of all
    findings by severity.
    """

    format: int = FORMAT
    cluster_id: str
    time_ms: int
    seconds: float
    version: int
    fast: bool = False
    topics: list[str] = []
    partitions: list[int] = []
    clean: bool
    counts: dict[str, int] = {}
    checked: Checked = msgspec.field(default_factory=Checked)
    findings: list[Finding] = []
    repairs: int = 0


def keep_report(check: Check, time_ms: int, seconds: float) -> None:
    """Keep the report of a check that began at a time, in ms, in the cluster that it is about.

    Raises InvalidRequestError for a cluster of a later version of sparklog, StorageError.
    """
    report, scope = check.report, check.scope
    if report.of_kind(NEWER_VERSION):
        raise InvalidRequestError("a later version of sparklog wrote to this cluster, so nothing is written to it")
    findings = in_order(report.findings if report.left is None else report.left)
    kept = KeptReport(
        cluster_id=report.cluster_id,
        time_ms=time_ms,
        seconds=round(seconds, 3),
        version=report.version,
        fast=report.fast,
        topics=sorted(map(printable, scope.topics)),
        partitions=sorted(scope.partitions),
        clean=report.clean,
        counts=counts(findings),
        checked=report.checked,
        findings=[_shorten(finding) for finding in findings[:MAX_FINDINGS]],
        repairs=sum(repair.done for repair in report.repairs),
    )
    check.store.put(FSCK_KEY, msgspec.json.encode(kept) + b"\n")


def _shorten(finding: Finding) -> Finding:
    """Return a finding whose texts, which name what others wrote, are printable and short."""
    texts = {name: printable(getattr(finding, name))[:_MAX_TEXT] for name in ("message", "action", "path", "topic")}
    return msgspec.structs.replace(finding, **texts)


def read_kept_report(store: Store) -> KeptReport | None:
    """Return the report that was kept last, None if there is none.

    Raises CorruptMetadataError, UnsupportedVersionError, StorageError.
    """
    report = read_json(store, FSCK_KEY, KeptReport, _REMEDY, _MAX_BYTES)
    if report is not None and not all(0 <= each <= _MAX_NUMBER for each in _numbers_of(report)):
        path = f"{store.root}/{FSCK_KEY}"
        raise CorruptMetadataError(f"{path} cannot be read: no check counts such numbers; {_REMEDY}", path=path)
    return report


def _numbers_of(report: KeptReport) -> list[float]:
    checked = msgspec.structs.astuple(report.checked)
    return [report.time_ms, report.seconds, report.version + 1, report.repairs, *report.counts.values(), *checked]
