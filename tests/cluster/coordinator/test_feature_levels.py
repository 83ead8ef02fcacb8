"""Feature levels: everything is written at the cluster's level, which one commit raises."""

from __future__ import annotations

import json
import re
import threading
import uuid
from functools import partial

import pytest

import sparklog
from sparklog.client.admin.client import AdminClient
from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.errors import (
    FeatureLevelError,
    FeatureUpdateFailedError,
    InvalidArgumentError,
    InvalidArgumentTypeError,
    UnsupportedVersionError,
)
from sparklog.log.commits.commit_attempt import CommitOutcome
from sparklog.maintenance.rollups import keep_rollups
from sparklog.monitoring.rollups import ROLLUPS
from sparklog.protocol import levels
from sparklog.protocol.commits import AlterConfig
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.decide.features import raise_level
from sparklog.protocol.decide.topics import alter_configs
from sparklog.protocol.state import State
from sparklog.store.base import BytesLike, Store
from sparklog.store.memory import MemoryStore
from tests.level_contents import find_beyond_level, schemas_of

OF_LEVEL_3 = sorted(name for feature in levels.FEATURES for name in feature.configs)
VALUES = {"history.format": "arrow", "log.history.format": "arrow", "value.format": "json", "key.format": "json"}


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(uuid.uuid4().hex)


@pytest.fixture
def old(store: MemoryStore) -> Coordinator:
    """A cluster of level 2 with a topic."""
    coordinator = create_cluster(store, level=2)
    coordinator.create_topic("orders")
    return coordinator


def formats(store: Store) -> list[int]:
    return [json.loads(store.get(info.key))["format"] for info in store.list("meta/commits/")]


def upgrade(coordinator: Coordinator, level: int = 3) -> int:
    return coordinator.submit(partial(raise_level, level=level))


# -- the table


def test_the_release_is_that_of_the_package() -> None:
    assert sparklog.__version__ == levels.RELEASE


def test_every_field_of_a_commit_that_a_later_level_added_belongs_to_a_feature() -> None:
    for earlier in range(levels.OLDEST_WRITTEN, levels.CURRENT):
        before, after = schemas_of(earlier), schemas_of(earlier + 1)
        for name, schema in after.items():
            if name in before and isinstance(schema, dict) and not schema.get("additionalProperties", True):
                added = schema["properties"].keys() - before[name]["properties"].keys()
                stated = {
                    field
                    for feature in levels.FEATURES
                    if feature.level == earlier + 1
                    for field in feature.fields.get(name, ())
                }
                assert added == stated, name


@pytest.mark.parametrize("config", OF_LEVEL_3)
def test_a_config_of_a_later_level_is_refused_with_the_level_and_the_command(
    old: Coordinator, store: MemoryStore, config: str
) -> None:
    before = {info.key: store.get(info.key) for info in store.list()}
    value = VALUES.get(config, {"delay.ms": "1", "retention.ms": "1"}.get(config[-8:], "false"))
    actions = [AlterConfig(topic="" if config.startswith(("log.", "system.")) else "orders", set={config: value})]
    with pytest.raises(
        FeatureLevelError, match=rf"{re.escape(config)} needs feature level 3 .*has level 2.*upgrade --f"
    ):
        old.submit(lambda state: Decision(list(actions), None))
    assert {info.key: store.get(info.key) for info in store.list()} == before
    upgrade(old)
    old.submit(lambda state: Decision(list(actions), None))


def test_a_topic_with_a_later_config_is_not_created(old: Coordinator) -> None:
    with pytest.raises(FeatureLevelError, match=r"history\.format needs feature level 3"):
        old.create_topic("history", configs={"history.format": "delta"})
    upgrade(old)
    old.create_topic("history", configs={"history.format": "delta"})


def test_a_refused_request_does_not_fail_those_that_share_its_commit(old: Coordinator) -> None:
    outcomes: dict[str, object] = {}

    def alter(name: str, value: str) -> None:
        try:
            outcomes[name] = old.submit(partial(alter_configs, topic="orders", changes={name: value}), others=1)
        except FeatureLevelError as error:
            outcomes[name] = error

    changes = {"history.format": "delta", "retention.ms": "5"}
    threads = [threading.Thread(target=alter, args=change) for change in changes.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert isinstance(outcomes["history.format"], FeatureLevelError)
    assert outcomes["retention.ms"] is None
    assert old.refresh().topics["orders"].configs == {"retention.ms": "5"}


# -- the raise


def test_a_raise_is_one_commit_and_the_level_is_never_lowered(old: Coordinator, store: MemoryStore) -> None:
    assert upgrade(old) == 2
    assert formats(store) == [2, 2, 3]
    assert upgrade(old) == 3
    assert len(formats(store)) == 3
    with pytest.raises(FeatureUpdateFailedError, match="restore a copy of the root"):
        upgrade(old, 2)
    with pytest.raises(FeatureLevelError, match="upgrade sparklog first"):
        upgrade(old, levels.CURRENT + 1)


def test_a_commit_that_loses_against_the_raise_is_decided_again_at_the_new_level() -> None:
    class Raising(MemoryStore):
        """A store on which another process raises the level right before our own commit."""

        armed = False

        def put_if_absent(self, key: str, data: BytesLike) -> None:
            if self.armed and key.startswith("meta/commits/"):
                self.armed = False
                upgrade(open_cluster(self))
            super().put_if_absent(key, data)

    store = Raising(uuid.uuid4().hex)
    coordinator = create_cluster(store, level=2)
    seen: list[int] = []

    def decide(state: State) -> Decision[None]:
        seen.append(state.level)
        return alter_configs(state, "", {"num.partitions": "3"})

    store.armed = True
    coordinator.submit(decide)
    assert seen == [2, 3]
    assert formats(store) == [2, 3, 3]
    assert coordinator.state.level == 3


def test_two_raises_at_a_time_are_one(old: Coordinator, store: MemoryStore) -> None:
    other = open_cluster(store)
    draft = other.log.draft()
    draft.raise_level(3)
    upgrade(old)
    assert other.log.commit(draft) is CommitOutcome.LOST
    assert upgrade(other) == 3
    assert formats(store) == [2, 2, 3]


def test_a_process_that_runs_through_the_raise_continues_at_the_new_level(old: Coordinator, store: MemoryStore) -> None:
    running = open_cluster(store)
    running.log.write_checkpoint()
    upgrade(old)
    running.create_topic("more")
    manifest = running.log.write_checkpoint()
    assert (running.state.level, manifest.format) == (3, 3)
    assert formats(store)[-1] == 3
    assert open_cluster(store).state == running.state


def test_a_checkpoint_states_the_version_that_it_needs(old: Coordinator, store: MemoryStore) -> None:
    """A cluster is opened from its newest checkpoint, which is all that an older program reads of it."""
    assert old.log.write_checkpoint().needs == ""
    upgrade(old)
    old.log.write_checkpoint()
    [key] = [info.key for info in store.list("meta/checkpoints/") if f"{old.state.version:020d}" in info.key
             and info.key.endswith(".json")]  # fmt: skip
    manifest = json.loads(store.get(key))
    assert (manifest["format"], manifest["needs"]) == (3, "0.3.0")
    store.put(key, json.dumps(manifest | {"format": levels.CURRENT + 1, "needs": "9.4.0"}).encode())
    with pytest.raises(UnsupportedVersionError, match=rf"{key} has format .* needs sparklog 9\.4\.0 or newer; upgrade"):
        open_cluster(store)


def test_what_is_stored_before_the_raise_is_of_the_old_level(old: Coordinator, store: MemoryStore) -> None:
    for number in range(3):
        old.create_topic(f"topic-{number}")
        assert old.log.write_checkpoint().format == 2
    assert find_beyond_level(store, 2) == []


def test_rollups_are_kept_once_the_level_allows_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparklog.maintenance.rollups.ROLLUP_COMMITS", 2)
    store, clock = MemoryStore(uuid.uuid4().hex), ManualClock()
    coordinator = create_cluster(store, clock=clock, level=2)
    coordinator.create_topic("orders")
    assert keep_rollups(coordinator).files == 0
    assert list(store.list(ROLLUPS)) == []
    upgrade(coordinator)
    assert keep_rollups(coordinator).files > 0


# -- clients


def test_the_admin_client_describes_and_raises_the_level(old: Coordinator, store: MemoryStore) -> None:
    admin = AdminClient(cluster=old)
    described = admin.describe_features()
    assert described == {
        "supported_features": {"metadata.version": (levels.OLDEST_WRITTEN, levels.CURRENT)},
        "finalized_features": {"metadata.version": (2, 2)},
        "finalized_features_epoch": old.state.version,
    }
    assert admin.update_features({"metadata.version": 3}, validate_only=True) == {"metadata.version": "OK"}
    assert formats(store) == [2, 2]
    assert admin.update_features({"metadata.version": ("upgrade", 3)}) == {"metadata.version": "OK"}
    assert admin.describe_features()["finalized_features"] == {"metadata.version": (3, 3)}


@pytest.mark.parametrize(
    ("updates", "error"),
    [
        ([], InvalidArgumentTypeError),
        ({"metadata.version": "3"}, InvalidArgumentTypeError),
        ({"metadata.version": True}, InvalidArgumentTypeError),
        ({"metadata.version": ("sideways", 3)}, InvalidArgumentError),
        ({"metadata.version": ("unknown", 3)}, InvalidArgumentError),
        ({}, FeatureUpdateFailedError),
        ({"metadata.version": ("safe_downgrade", 3)}, FeatureUpdateFailedError),
        ({"metadata.version": (3, 3)}, FeatureUpdateFailedError),
        ({"metadata.version": ("safe_downgrade", 1)}, FeatureUpdateFailedError),
        ({"metadata.version": 3, "kraft.version": 1}, FeatureUpdateFailedError),
    ],
)
def test_invalid_updates_of_features_are_refused(old: Coordinator, updates: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        AdminClient(cluster=old).update_features(updates)  # type: ignore[arg-type]
    assert old.refresh().level == 2


@pytest.mark.parametrize(("release", "level"), [("0.2.0", 2), ("0.2.7", 2), ("0.3", 3), (None, levels.CURRENT)])
def test_a_cluster_is_created_for_a_release(tmp_path: object, release: str | None, level: int) -> None:
    cluster = sparklog.create_cluster(f"{tmp_path}/root", release_version=release)
    assert cluster.coordinator.state.level == level


@pytest.mark.parametrize("release", ["0.1.0", "0.0.1", "9.9.9", "two", ""])
def test_a_cluster_is_not_created_for_other_releases(tmp_path: object, release: str) -> None:
    with pytest.raises(FeatureLevelError):
        sparklog.create_cluster(f"{tmp_path}/root", release_version=release)
