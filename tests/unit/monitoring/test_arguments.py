"""What users may ask of a system table."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from sparklog.errors import InvalidConfigurationError
from sparklog.monitoring.arguments import parse_selection
from sparklog.monitoring.system_tables import MINUTE_MS, RowSelection

NOW_MS = 1_800_000_000_000
NOW = datetime(2027, 1, 15, 8, tzinfo=timezone.utc)


def test_times_are_moments_or_how_long_ago() -> None:
    for since in ("90m", " 90m ", NOW - timedelta(minutes=90), NOW_MS - 5_400_000, str(NOW_MS - 5_400_000)):
        assert parse_selection("lag", NOW_MS, since=since) == RowSelection(since_ms=NOW_MS - 5_400_000)
    for until in ("2027-01-15T08:00:00Z", "2027-01-15T09:00:00+01:00", "2027-01-15 08:00+00:00", "0s"):
        assert parse_selection("commits", NOW_MS, until=until) == RowSelection(until_ms=NOW_MS)
    assert parse_selection("lag", NOW_MS, since="1d", step="5m").step_ms == 5 * MINUTE_MS
    assert parse_selection("lag", NOW_MS, since="1d", step=10).step_ms == 10
    assert parse_selection("lag", NOW_MS, since="1d", step=" 3600000 ").step_ms == 3_600_000


INVALID: list[tuple[str, dict[str, Any], str]] = [
    ("lagg", {}, "unknown system table 'lagg'; did you mean lag"),
    ("lag", {"since": "yesterday"}, "invalid since 'yesterday': give a time such as"),
    ("lag", {"since": "٣m"}, "invalid since '٣m'"),
    ("lag", {"since": True}, "invalid since True"),
    ("lag", {"until": datetime(2027, 1, 1)}, "invalid until 2027-01-01 00:00:00: it has no time zone"),
    ("lag", {"until": 2**80}, "invalid until"),
    ("lag", {"since": NOW_MS + 1}, "it is not in the past"),
    ("commits", {"since": "1m", "until": "2m"}, "it is not before until"),
    ("lag", {"step": "10s"}, "give since as well"),
    ("lag", {"since": "1h", "step": 0}, "invalid step 0"),
    ("lag", {"since": "1h", "step": "0"}, "invalid step '0'"),
    ("lag", {"since": "1h", "step": "often"}, "invalid step 'often': give a number of ms, or a duration"),
    ("commits", {"since": "1h", "step": "1m"}, "table commits has no steps"),
    ("topics", {"since": "1h"}, "table topics shows what there is now"),
    ("commits", {"topic": "orders"}, "table commits has no column topic"),
    ("members", {"partition": 0}, "table members has no column partition"),
    ("appends", {"group": "g"}, "table appends has no column group"),
    ("appends", {"partition": -1}, "invalid partition -1"),
    ("appends", {"partition": 2**31}, "invalid partition"),
    ("lag", {"since": "x" * 10_000}, "invalid since 'xxx"),
]


@pytest.mark.parametrize(("table", "arguments", "message"), INVALID)
def test_an_argument_that_is_invalid_or_does_not_apply_is_refused(
    table: str, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidConfigurationError) as raised:
        parse_selection(table, NOW_MS, **arguments)
    assert message in raised.value.message
    assert len(raised.value.message) < 500
