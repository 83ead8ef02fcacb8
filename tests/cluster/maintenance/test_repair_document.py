"""docs/repair.md explains every kind of finding and every field of the JSON report."""

from __future__ import annotations

import re
from pathlib import Path

from sparklog.maintenance.fsck.kinds import KINDS, Checked, Finding, Repair, Report

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
