"""Each rule of who owns a location, and of what is evidence of a copy, is broken on purpose, and the simulation of
operators finds it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pytest

from sparklog.coordinator import begun_files, broker_stores, closed_root, ownership, take_over, unclean_election
from sparklog.coordinator import coordinator as coordinating
from sparklog.coordinator.ownership import Examined
from sparklog.errors import ObjectNotFoundError, SparklogError
from sparklog.log.checkpoints.usable_checkpoints import are_commits_replaced
from sparklog.log.commits import cleanup
from sparklog.log.commits.removal import delete_while
from sparklog.maintenance import promotion
from sparklog.maintenance.gc import surplus_replicas
from sparklog.protocol.decide import brokers as decide_brokers
from sparklog.protocol.decide import locations as decide_locations
from sparklog.protocol.decide.brokers import move_broker
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.decide.locations import Move
from sparklog.protocol.decide.ownership import Ownership
from sparklog.protocol.segments import Segment
from sparklog.protocol.state import State
from sparklog.store.base import Deleted, Store
from sparklog.store.location import open_location
from tests.simulation.location_truth import (
    BRICKED,
    COMMIT_GONE,
    DELETED,
    DROPPED,
    LACKS,
    LOST,
    OTHER_TIMELINE,
    STILL_OPEN,
    TWO_ROOTS,
    UNREADABLE,
)
from tests.simulation.locations import LifeStore
from tests.simulation.operated import simulate

Patch = pytest.MonkeyPatch
SEEDS = 2000
"""Seeds of the theme that the bug concerns, of which one has to show it."""


# -- who owns a location


def any_closing_commit_promotes(patch: Patch) -> None:
    """A closing commit does not name the root that it was made for."""

    class Never(SparklogError):
        pass

    patch.setattr(promotion, "ClusterMovedError", Never)
    patch.setattr(promotion, "check_not_closed_for_another", lambda target: None)
    patch.setattr(promotion, "_is_complete", lambda target: True)
    patch.setattr(promotion, "claim_locations", lambda *_: set())


def only_the_existence_of_broker_json_counts(patch: Patch) -> None:
    def open_any(url: str, options: Mapping[str, object] | None = None, identity: object = None) -> Store:
        return open_location(url, options)

    patch.setattr(broker_stores, "open_location", open_any)
    patch.setattr(ownership, "check_mounted", lambda *_: None)


def a_superseded_root_deletes(patch: Patch) -> None:
    patch.setattr(ownership, "judge", lambda *_: Ownership.OWNED)


def a_cluster_is_created_in_a_location(patch: Patch) -> None:
    patch.setattr(coordinating, "check_no_location", lambda *_: None)


def an_election_trusts_any_listing(patch: Patch) -> None:
    """It looks at the identity once, before the listing."""
    real = unclean_election.check_owned  # type: ignore[attr-defined]
    looks: list[int] = []

    def check_first(coordinator: Any, broker: int, state: State) -> object:
        if looks:  # the one after the listing
            return looks.clear()
        store = real(coordinator, broker, state)
        looks.append(broker)
        return store

    def is_whole(store: Store, segment: Segment) -> bool:
        try:
            return all(store.info(key) for key in (segment.path, segment.index_path))
        except ObjectNotFoundError:
            return False

    def find_lacking(store: Store, segments: Sequence[Segment]) -> list[Segment]:
        return [segment for segment in segments if not is_whole(store, segment)]

    patch.setattr(unclean_election, "check_owned", check_first)
    patch.setattr(unclean_election, "_find_lacking", find_lacking)


def a_promotion_closes_a_root_that_took_over(patch: Patch) -> None:
    """One that was stopped goes on, and nobody looks whether the old root is in use again."""
    patch.setattr(closed_root, "is_superseded", lambda *_: False)
    patch.setattr(promotion, "is_superseded", lambda *_: False)
    patch.setattr(promotion, "_find_refusal", lambda *_: None)
    patch.setattr(promotion, "_look_at_owners", lambda *_, **__: promotion._Owned(set()))


def a_removal_does_not_look_whether_the_root_was_restored(patch: Patch) -> None:
    patch.setattr(cleanup, "delete_while", lambda store, keys, holds: delete_while(store, keys, lambda: True))


def a_clean_up_does_not_look_at_the_boundary(patch: Patch) -> None:
    patch.setattr(cleanup, "_are_removable", lambda store, newest, last: are_commits_replaced(store, newest))


# -- evidence of copies


def a_reused_id_inherits_evidence(patch: Patch) -> None:
    real = decide_brokers.register_broker

    def register(*arguments: Any, **options: Any) -> Decision[int]:
        decision = real(*arguments, **options)
        return Decision(decision.actions[:1], decision.result)

    patch.setattr(decide_brokers, "register_broker", register)


def replacement_commits_nothing(patch: Patch) -> None:
    patch.setattr(decide_locations, "replace_location", lambda *_, **__: Decision([], None))


def a_move_does_not_look(patch: Patch) -> None:
    def move(state: State, broker: int, url: str, root: str, *_: object, **__: object) -> Decision[Move]:
        return Decision(move_broker(state, broker, url, root).actions, Move(True))

    patch.setattr(decide_locations, "move_location", move)


def a_cordon_ends_with_the_removal(patch: Patch) -> None:
    """A deletion that was sent twice is served once more, when the copy is needed again."""
    patch.setattr(surplus_replicas, "may_repeat_requests", lambda store: False)


def a_job_states_no_history(patch: Patch) -> None:
    patch.setattr(begun_files, "check_begun", lambda log, store_of, request: request)
    patch.setattr(coordinating, "check_begun", lambda log, store_of, request: request)


def a_client_does_not_look_for_its_files(patch: Patch) -> None:
    patch.setattr(coordinating, "check_still_there", lambda log, store_of, request, seconds: request)


def replicas_are_not_verified_after_a_take_over(patch: Patch) -> None:
    patch.setattr(take_over, "verify_replicas", lambda coordinator: None)
    patch.setattr(promotion, "verify_replicas", lambda coordinator: None)


def a_take_over_fences_nobody(patch: Patch) -> None:
    """Nobody looks for files before they are committed either, which finds most of what this concerns."""
    a_client_does_not_look_for_its_files(patch)
    a_job_states_no_history(patch)
    patch.setattr(take_over, "_fence_all_writers", lambda state: Decision([], None))


def a_take_over_succeeds_beside_a_promotion(patch: Patch) -> None:
    """A location that the promoted root has claimed meanwhile counts as one that does not answer."""
    patch.setattr(take_over, "examine_owner", lambda *arguments: Examined(ownership.check_owned(*arguments)))


def only_broker_0_is_closed(patch: Patch) -> None:
    """It is the first root, also after a second promotion."""
    patch.setattr(promotion, "note_former_root", lambda root, address: None)


# -- names that live twice


def a_commit_is_withdrawn_by_its_name(patch: Patch) -> None:
    """The application compares before it deletes; the request may be sent twice."""

    def delete_exactly(self: LifeStore, key: str, data: bytes) -> Deleted:
        with suppress(ObjectNotFoundError):
            if self.get(key) == data:
                self.delete(key)
        return Deleted.NOW

    patch.setattr(LifeStore, "delete_exactly", delete_exactly)


BUGS: list[tuple[Callable[[Patch], None], str, tuple[str, ...], int]] = [
    (any_closing_commit_promotes, "promote", (TWO_ROOTS,), 26),
    (only_the_existence_of_broker_json_counts, "swap", (UNREADABLE, DELETED), 18),
    (a_superseded_root_deletes, "force", (DELETED,), 37),
    (a_superseded_root_deletes, "copy", (DELETED,), 4),
    (a_cluster_is_created_in_a_location, "create", (DELETED,), 3),
    (an_election_trusts_any_listing, "unclean", (DROPPED,), 222),
    (a_promotion_closes_a_root_that_took_over, "continue", (BRICKED, OTHER_TIMELINE, LOST), 152),
    (a_removal_does_not_look_whether_the_root_was_restored, "restore", (COMMIT_GONE, BRICKED), 56),
    (a_clean_up_does_not_look_at_the_boundary, "restore", (BRICKED,), 426),
    (a_reused_id_inherits_evidence, "reuse", (UNREADABLE, LACKS), 41),
    (replacement_commits_nothing, "replace", (UNREADABLE, LACKS), 262),
    (a_move_does_not_look, "move", (UNREADABLE, LACKS), 11),
    (a_cordon_ends_with_the_removal, "reassign", (DELETED,), 68),
    (a_job_states_no_history, "restore", (UNREADABLE, LACKS), 34),
    (a_client_does_not_look_for_its_files, "restore", (UNREADABLE, LACKS), 2),
    (replicas_are_not_verified_after_a_take_over, "continue", (UNREADABLE, LACKS), 929),
    (a_take_over_fences_nobody, "continue", (OTHER_TIMELINE, UNREADABLE, LACKS), 273),
    (a_take_over_succeeds_beside_a_promotion, "continue", (TWO_ROOTS,), 14),
    (only_broker_0_is_closed, "chain", (STILL_OPEN,), 0),
    (a_commit_is_withdrawn_by_its_name, "restore", (COMMIT_GONE,), 10),
]
"""The bug, the theme that shows it, the kinds of findings of which one has to be there, and the seed to begin with,
which saves time only: another request of the code under test moves what a seed shows."""


@pytest.mark.parametrize(
    ("bug", "theme", "kinds", "first"), BUGS, ids=[f"{bug.__name__}-{theme}" for bug, theme, _, _ in BUGS]
)
def test_a_broken_rule_is_found(
    bug: Callable[[Patch], None], theme: str, kinds: tuple[str, ...], first: int, monkeypatch: Patch
) -> None:
    bug(monkeypatch)
    for seed in (*range(first, SEEDS), *range(first)):
        found = {finding.kind for finding in simulate(seed, (theme,)).truth.findings}
        if found.intersection(kinds):
            print(f"seed {seed}: {sorted(found)}")
            return
    pytest.fail(f"none of {SEEDS} seeds of theme {theme} shows one of: {', '.join(kinds)}")
