"""Histories of a cluster without faults have no finding; with one fault, they have one of its kind."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.testing.checks import assert_clean, check
from sparklog.testing.findings import (
    ABORTED_READ,
    DUPLICATE,
    GROUP_OFFSET_BACK,
    INCONSISTENT_OFFSETS,
    TORN_TRANSACTION,
    UNSEEN,
)
from sparklog.testing.history import History
from tests.sample import examples
from tests.unit.testing.ideal import Ideal


@given(st.integers(0, 2**32), st.integers(0, 120))
@settings(max_examples=examples(150))
def test_a_cluster_without_faults_has_no_findings(seed: int, steps: int) -> None:
    assert_clean(Ideal(seed).run(steps))


def spoilt(seed: int, kind: str) -> set[str]:
    """The kinds of findings after one fault in an otherwise clean history."""
    chance = random.Random(seed)
    ideal = Ideal(seed)
    history = ideal.run(80)
    final = next(o for o in history.of("read"))
    acknowledged = [o for o in history.of("send") if o.outcome == "ok"]
    victim = chance.choice(acknowledged)
    write = victim.writes[0]
    records = final.reads[write.partition].records
    if kind == UNSEEN:  # the log ends before it, as if its tail had been truncated
        history = History([o for o in history.operations if o.kind != "poll"])
        final.reads[write.partition] = final.reads[write.partition]._replace(
            records=records[: write.offset], end=write.offset
        )
    elif kind == DUPLICATE:
        records.append((len(records), write.value))  # type: ignore[attr-defined]
    elif kind == INCONSISTENT_OFFSETS:
        victim.writes[0] = write._replace(offset=write.offset + 1)
    elif kind == ABORTED_READ:
        victim.outcome = "fail"
    elif kind == GROUP_OFFSET_BACK:
        log = next(o for o in history.of("offset_log")).offsets
        log.append(log[0]._replace(offset=log[-1].offset + 1))
        log.append(log[0]._replace(offset=log[-1].offset - 1))
    elif kind == TORN_TRANSACTION:
        history = History([o for o in history.operations if o.kind != "poll"])
        torn = next(o for o in history.of("transaction") if o.outcome == "ok" and len(o.writes) > 1)
        torn.outcome = "info"
        dropped = torn.writes[-1]
        kept = [record for record in final.reads[dropped.partition].records if record[1] != dropped.value]
        final.reads[dropped.partition] = final.reads[dropped.partition]._replace(records=kept)
    return {finding.kind for finding in check(history)}


def test_one_fault_in_a_long_clean_history_is_reported() -> None:
    for kind in (UNSEEN, DUPLICATE, INCONSISTENT_OFFSETS, ABORTED_READ, GROUP_OFFSET_BACK, TORN_TRANSACTION):
        for seed in range(20):
            assert kind in spoilt(seed, kind), f"seed {seed}: {kind} is not reported"
