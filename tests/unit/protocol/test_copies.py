"""Every broker in an ISR has every live file, whatever operators do and whoever is stopped; broken rules are found.

Each seeded bug takes one rule out of the product; the model (``copies_model``) has to notice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparklog.coordinator import begun_files
from sparklog.protocol.commits import ChangeBroker
from sparklog.protocol.decide import acks, replicas, segments
from sparklog.protocol.decide import brokers as decide_brokers
from sparklog.protocol.decide import locations as decide_locations
from sparklog.protocol.decide.brokers import move_broker
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.decide.locations import Move
from sparklog.protocol.state import State
from tests.sample import examples
from tests.unit.protocol.copies_model import WEIGHTS, Copies

Patch = pytest.MonkeyPatch
SEEDS = 2000
"""Each bug must be found within these."""

LONG = 200
"""Steps of a walk that looks for a bug, some of which need ten in one order."""


WRITES = {"write": 3, "commit_write": 4, "reassign": 6, "see_replica": 4, "add_replica": 3}
CLEANING = {"begin_cleaning": 4, "decide_cleaning": 4, "delete_surplus": 4, "end_cleaning": 4}
MOVES = {"copy_location": 1, "look": 1, "move": 2}
FOCUSES: dict[str, Mapping[str, int]] = {
    "everything": WEIGHTS,
    "ids": {**WRITES, "register": 3, "remove": 4},
    "jobs": {**WRITES, **MOVES, "write_as_job": 3},
    "restores": {**WRITES, "write_as_job": 3, "restore": 1},
    "disks": {**WRITES, "replace": 1, "check_brokers": 2, "elect_preferred": 1},
    "moves": {**WRITES, **MOVES},
    "cleaning": {**WRITES, **CLEANING},
    "stopped jobs": {**WRITES, **CLEANING, "write": 1, "commit_write": 1, "add_replica": 1, "reassign": 8},
    "two removals": {**WRITES, **CLEANING, "decide_cleaning": 6, "delete_surplus": 1},
}
"""The kinds of steps of a walk, and how often each comes: rare sequences come sooner if there are few kinds."""


@settings(
    max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(st.randoms(use_true_random=False))
def test_every_broker_in_an_isr_has_every_live_file(random: Random) -> None:
    assert not Copies(random).run()


@pytest.mark.parametrize("focus", FOCUSES)
def test_no_seed_breaks_it(focus: str) -> None:
    for seed in range(50):
        wrong = Copies(Random(seed)).run(FOCUSES[focus])
        assert not wrong, f"seed {seed}\n{wrong}"


# -- seeded bugs


def a_reused_id_inherits_evidence(patch: Patch) -> None:
    real = decide_brokers.register_broker
    patch.setattr(
        decide_brokers, "register_broker", lambda *args, **named: Decision(real(*args, **named).actions[:1], 0)
    )


def a_removed_broker_counts(patch: Patch) -> None:
    def may_lack(state: State, broker: int, path: str) -> bool:
        return False

    for module in (acks, segments):
        patch.setattr(module, "may_lack", may_lack)


def replacement_commits_nothing(patch: Patch) -> None:
    patch.setattr(decide_locations, "replace_location", lambda *args: Decision([], None))


def replacement_leaves_the_isr_as_it_is(patch: Patch) -> None:
    patch.setattr(decide_locations, "find_changes", lambda *args: [])


def a_removal_leaves_evidence(patch: Patch) -> None:
    real = decide_locations.begin_removal

    def begin(state: State, broker: int) -> Decision[decide_locations.Removal]:
        decision = real(state, broker)
        removal = decision.result._replace(version=state.brokers[broker].lost_files_at)
        return Decision([ChangeBroker(broker=broker, cordoned=True)], removal)

    patch.setattr(decide_locations, "begin_removal", begin)


def a_removal_does_not_cordon(patch: Patch) -> None:
    real = decide_locations.begin_removal
    patch.setattr(
        decide_locations,
        "begin_removal",
        lambda state, broker: Decision([ChangeBroker(broker=broker, lost_files=True)], real(state, broker).result),
    )
    patch.setattr(decide_locations, "may_remove", lambda *args: True)


def a_removal_lifts_what_another_relies_on(patch: Patch) -> None:
    def end(state: State, removal: decide_locations.Removal) -> Decision[bool]:
        if not removal.cordons or removal.broker not in state.brokers:
            return Decision([], True)
        return Decision([ChangeBroker(broker=removal.broker, cordoned=False)], True)

    patch.setattr(decide_locations, "end_removal", end)


def a_move_does_not_look(patch: Patch) -> None:
    def move(state: State, broker: int, url: str, root: str, *more: object, **named: object) -> Decision[Move]:
        return Decision(move_broker(state, broker, url, root).actions, Move(True))

    patch.setattr(decide_locations, "move_location", move)


def a_move_does_not_compare_with_the_newest_state(patch: Patch) -> None:
    patch.setattr(decide_locations, "still_holds", lambda *args: True)


def a_job_states_no_history(patch: Patch) -> None:
    patch.setattr(begun_files, "check_begun", lambda log, store_of, request: request)


def a_replica_joins_beside_one_that_lost_files(patch: Patch) -> None:
    real = replicas.find_obstacle

    def find(state: State, replica: replicas.CaughtUp) -> str:
        why = real(state, replica)
        return "" if "which is in sync" in why else why

    patch.setattr(replicas, "find_obstacle", find)


def a_replica_joins_on_old_evidence(patch: Patch) -> None:
    real = replicas.find_obstacle

    def find(state: State, replica: replicas.CaughtUp) -> str:
        why = real(state, replica)
        return "" if why.startswith(f"broker {replica.broker} has lost files") else why

    patch.setattr(replicas, "find_obstacle", find)


BUGS: list[tuple[Callable[[Patch], None], str]] = [
    (a_reused_id_inherits_evidence, "ids"),
    (a_removed_broker_counts, "everything"),
    (replacement_commits_nothing, "everything"),
    (replacement_leaves_the_isr_as_it_is, "everything"),
    (a_removal_leaves_evidence, "stopped jobs"),
    (a_removal_does_not_cordon, "cleaning"),
    (a_removal_lifts_what_another_relies_on, "two removals"),
    (a_move_does_not_look, "everything"),
    (a_move_does_not_compare_with_the_newest_state, "everything"),
    (a_job_states_no_history, "everything"),
    (a_replica_joins_on_old_evidence, "everything"),
    (a_replica_joins_beside_one_that_lost_files, "disks"),
]


@pytest.mark.parametrize(("bug", "focus"), BUGS, ids=lambda value: getattr(value, "__name__", value))
def test_a_broken_rule_is_found(bug: Callable[[Patch], None], focus: str, monkeypatch: Patch) -> None:
    bug(monkeypatch)
    assert any(Copies(Random(seed)).run(FOCUSES[focus], LONG) for seed in range(SEEDS))


def test_a_name_with_a_newer_version_than_its_stores_is_found() -> None:
    newest = lambda stores, newest: newest.version  # noqa: E731
    assert any(Copies(Random(seed), newest).run(FOCUSES["jobs"], LONG) for seed in range(SEEDS))
