"""How alerts begin to fire and resolve, and how time passes for them: decisions without storage and clocks."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from sparklog.monitoring.alerts.rules import Rule
from sparklog.monitoring.alerts.ticks import MAX_DIVERGENCE_MS, SETTLED_SECONDS, Reading, Tick, is_outdated, next_tick
from sparklog.monitoring.alerts.transitions import AlertKey, AlertState, Observation, Subject, decide

BILLING: Subject = (("group", "billing"),)
KEY = ("behind", BILLING)
RULE = Rule("behind", "lag", above=10, clear=5, hold=60, keep=120)


def tick(seconds: float, elapsed: float) -> Tick:
    return Tick(round(seconds * 1000), elapsed, Reading(round(seconds * 1000), seconds))


def run(rule: Rule, values: Sequence[float | None], step: float = 30.0) -> list[str]:
    """Return what an alert is after each evaluation, with a mark where it changed; None was not measured."""
    states: dict[AlertKey, AlertState] = {}
    seen = []
    for number, value in enumerate(values):
        measured = {} if value is None else {rule.name: {BILLING: Observation(value)}}
        states, changes = decide([rule], measured, states, tick(number * step, step if number else 0.0))
        mark = "".join(f" {change.status}!" for change in changes)
        seen.append((states[KEY].status if KEY in states else "-") + mark)
    return seen


def test_a_value_above_the_threshold_fires_after_its_time() -> None:
    assert run(RULE, [11, 11, 11, 11]) == ["pending", "pending", "firing firing!", "firing"]


def test_a_value_at_the_threshold_does_not_count() -> None:
    assert run(RULE, [10, 10, 10, 10]) == ["-"] * 4


def test_a_rule_without_a_time_fires_at_once() -> None:
    assert run(RULE._replace(hold=0), [11]) == ["firing firing!"]


def test_a_value_that_falls_before_the_time_begins_anew() -> None:
    assert run(RULE, [11, 11, 9, 11, 11, 11]) == ["pending", "pending", "-", "pending", "pending", "firing firing!"]


def test_a_firing_alert_resolves_when_it_has_been_clear_for_its_time() -> None:
    rule = RULE._replace(hold=0, keep=60)
    assert run(rule, [11, 5, 5, 5, 5]) == ["firing firing!", "firing", "firing", "- resolved!", "-"]


def test_a_value_between_clear_and_above_keeps_it_firing() -> None:
    assert run(RULE._replace(hold=0, keep=0), [11, 6, 10, 6, 5]) == [
        "firing firing!", "firing", "firing", "firing", "- resolved!"
    ]  # fmt: skip


def test_a_value_that_rises_again_begins_the_time_until_it_resolves_anew() -> None:
    rule = RULE._replace(hold=0, keep=60)
    assert run(rule, [11, 5, 5, 6, 5, 5, 5]) == [
        "firing firing!", "firing", "firing", "firing", "firing", "firing", "- resolved!"
    ]  # fmt: skip


def test_what_was_not_measured_stays_as_it_is() -> None:
    assert run(RULE._replace(hold=0, keep=0), [11, None, None, 5]) == [
        "firing firing!", "firing", "firing", "- resolved!"
    ]  # fmt: skip


def test_time_without_a_measurement_does_not_count() -> None:
    assert run(RULE, [11, None, None, 11]) == ["pending", "pending", "pending", "pending"]


def test_a_subject_that_no_longer_exists_resolves() -> None:
    firing = {KEY: AlertState("firing", 0, 100.0, None, 11.0)}
    states, (change,) = decide([RULE._replace(keep=0)], {"behind": {}}, firing, tick(100, 30))
    assert (states, change.status, change.subject, change.value) == ({}, "resolved", BILLING, 11.0)


def test_the_alerts_of_a_rule_that_was_removed_resolve_and_pending_ones_are_forgotten() -> None:
    earlier = {
        KEY: AlertState("firing", 0, 100.0, None, 11.0),
        ("behind", ()): AlertState("pending", 0, 10.0, None, 11.0),
    }
    states, changes = decide([], {}, earlier, tick(100, 30))
    assert (states, [(change.subject, change.status) for change in changes]) == ({}, [(BILLING, "resolved")])


def test_an_alert_fires_since_its_value_passed_the_threshold() -> None:
    states, _ = decide([RULE], {"behind": {BILLING: Observation(11.0)}}, {}, tick(100, 0))
    _, (change,) = decide([RULE], {"behind": {BILLING: Observation(12.0, "more")}}, states, tick(160, 60))
    assert (change.since_ms, change.time_ms, change.value, change.detail) == (100_000, 160_000, 12.0, "more")


VALUES = st.lists(st.sampled_from([0.0, 5.0, 7.0, 10.0, 11.0, 20.0]), max_size=30)


@given(VALUES, st.sampled_from([0.0, 30.0, 90.0]), st.sampled_from([0.0, 30.0, 90.0]))
def test_firing_and_resolved_alternate_and_have_held_for_their_times(
    values: list[float], hold: float, keep: float
) -> None:
    seen = run(RULE._replace(hold=hold, keep=keep), values)
    changes = [(number, text.split()[-1]) for number, text in enumerate(seen) if text.endswith("!")]
    assert [status for _, status in changes] == ["firing!", "resolved!"] * (len(changes) // 2) + ["firing!"] * (
        len(changes) % 2
    )
    for number, status in changes:
        steps = int((hold if status == "firing!" else keep) // 30) + 1
        window = values[number - steps + 1 : number + 1]
        assert len(window) == steps
        assert all(value > 10 for value in window) if status == "firing!" else all(value <= 5 for value in window)


# --- time


def ticks(*readings: tuple[float, float, str]) -> list[Tick]:
    """Return the ticks for what the wall clock and the monotonic clock say, in seconds, and the boot."""
    found: list[Tick] = []
    for wall, monotonic, boot in readings:
        found.append(next_tick(found[-1] if found else None, Reading(round(wall * 1000), monotonic, boot)))
    return found


def test_time_goes_by_both_clocks_where_they_agree() -> None:
    found = ticks((1000, 5, "a"), (1030, 35, "a"), (1061, 65, "a"))
    assert [(each.time_ms, each.elapsed) for each in found] == [(1_000_000, 0), (1_030_000, 30), (1_061_000, 30)]


def test_a_wall_clock_that_jumps_forwards_and_back_changes_nothing() -> None:
    found = ticks((1000, 5, "a"), (90_000, 35, "a"), (90_030, 65, "a"), (1090, 95, "a"))
    assert [(each.time_ms, each.elapsed) for each in found] == [
        (1_000_000, 0), (1_030_000, 30), (1_060_000, 30), (1_090_000, 30)
    ]  # fmt: skip


def test_a_wall_clock_that_jumps_back_does_not_stop_time() -> None:
    found = ticks((1000, 5, "a"), (10, 35, "a"), (40, 65, "a"))
    assert [(each.time_ms, each.elapsed) for each in found] == [(1_000_000, 0), (1_030_000, 30), (1_060_000, 30)]


def test_a_wall_clock_that_was_set_is_believed_after_some_time() -> None:
    found = ticks((1000, 0, "a"), *((50_000 + after, after, "a") for after in range(300, 1801, 300)))
    assert [each.time_ms for each in found[:4]] == [1_000_000, 1_300_000, 1_600_000, 1_900_000]
    assert found[-1].time_ms == 51_800_000
    assert found[-1].elapsed == 300


def test_after_a_restart_of_the_machine_the_wall_clock_counts_within_bounds() -> None:
    found = ticks((1000, 500, "a"), (1060, 10, "b"), (500, 70, "c"), (900_000, 90, "d"), (900_030, 20, ""))
    assert [each.elapsed for each in found] == [0, 60, 0, 3600, 30]


@given(
    st.lists(
        st.tuples(st.integers(1, 120), st.integers(-(10**7), 10**7) | st.just(0)),  # seconds, jump in seconds
        min_size=1,
        max_size=40,
    )
)
def test_time_never_jumps_unless_the_clock_was_off_for_long(steps: list[tuple[int, int]]) -> None:
    wall, monotonic = 10**9, 1000.0
    last = next_tick(None, Reading(wall * 1000, monotonic, "a"))
    for seconds, jump in steps:
        wall, monotonic = wall + seconds + jump, monotonic + seconds
        now = next_tick(last, Reading(wall * 1000, monotonic, "a"))
        assert now.elapsed == seconds
        moved_ms = now.time_ms - last.time_ms
        was_off = last.off_for + seconds >= SETTLED_SECONDS
        assert was_off or abs(moved_ms - seconds * 1000) <= MAX_DIVERGENCE_MS
        last = now


def test_a_measurement_that_began_before_anothers_evaluation_is_outdated() -> None:
    (last,) = ticks((1000, 50, "a"))
    assert is_outdated(last, Reading(999_000, 49, "a"))
    assert not is_outdated(last, Reading(1_001_000, 51, "a"))
    assert not is_outdated(last, Reading(999_000, 49, "b"))
    assert not is_outdated(None, Reading(0, 0, "a"))
