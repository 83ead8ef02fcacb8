"""The claim file of a location that several processes register, or whose requests lose their answers."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from sparklog.coordinator import create_cluster, open_cluster
from sparklog.coordinator.brokers import add_broker
from sparklog.errors import CorruptMetadataError, DuplicateBrokerRegistrationError
from sparklog.log.broker_files import encode_identity, read_identity
from sparklog.store.location import IDENTITY_KEY
from sparklog.store.memory import MemoryStore
from sparklog.store.open import open_store
from sparklog.testing.faulty_store import Call, Fault, FaultyStore
from sparklog.testing.substitutes import substituted


def register_in_between(root: MemoryStore, url: str) -> tuple[list[int], Callable[[int, Call], None]]:
    """Return what happens before the first conditional write: another process registers ``url``. The list has its
    broker id then, after -1."""
    registered: list[int] = []

    def register(step: int, call: Call) -> None:
        if call.operation == "put_if_absent" and not registered:
            registered.append(-1)
            registered.append(add_broker(open_cluster(root), url))

    return registered, register


def test_a_lost_registration_race_keeps_the_files_of_the_winner(tmp_path: Path) -> None:
    """Both processes have claimed the same id for the same location; the loser removes nothing of the winner."""
    inner = MemoryStore(uuid.uuid4().hex)
    url = str(tmp_path)
    registered, register_first = register_in_between(inner, url)
    create_cluster(inner)
    store = FaultyStore(inner, before=register_first)
    with pytest.raises(DuplicateBrokerRegistrationError):
        add_broker(open_cluster(store), url)
    assert registered == [-1, 1]
    assert open_cluster(inner).state.brokers[1].url == url
    identity = read_identity(open_cluster(inner).store_of(1))
    assert identity is not None
    assert identity.broker == 1


def test_a_location_whose_id_is_taken_during_registration_gets_the_next_id() -> None:
    inner = MemoryStore(uuid.uuid4().hex)
    url, other_url = (f"memory://{uuid.uuid4().hex}" for _ in range(2))
    registered, register_other = register_in_between(inner, other_url)
    create_cluster(inner)
    store = FaultyStore(inner, before=register_other)
    coordinator = open_cluster(store)
    assert add_broker(coordinator, url) == 2
    assert registered == [-1, 1]
    identity = read_identity(coordinator.store_of(2))
    assert identity is not None
    assert identity.broker == 2


def test_a_given_id_that_is_taken_during_registration_is_refused_and_leaves_no_claim() -> None:
    inner = MemoryStore(uuid.uuid4().hex)
    url, other_url = (f"memory://{uuid.uuid4().hex}" for _ in range(2))
    _, register_other = register_in_between(inner, other_url)
    create_cluster(inner)
    with pytest.raises(DuplicateBrokerRegistrationError):
        add_broker(open_cluster(FaultyStore(inner, before=register_other)), url, 1)
    assert read_identity(open_store(url)) is None
    assert read_identity(open_store(other_url)) is not None
    assert add_broker(open_cluster(inner), url) == 2


def test_a_location_claimed_by_another_cluster_during_registration_is_left_unchanged() -> None:
    location = MemoryStore(uuid.uuid4().hex)

    def claim_first(step: int, call: Call) -> None:
        if call.operation == "put_if_absent":
            location.put(IDENTITY_KEY, encode_identity("another", 7))

    cluster = create_cluster(MemoryStore(uuid.uuid4().hex))
    with (
        substituted(FaultyStore(location, before=claim_first)),
        pytest.raises(DuplicateBrokerRegistrationError, match="taken by another registration"),
    ):
        add_broker(cluster, location.root)
    identity = read_identity(location)
    assert identity is not None
    assert (identity.cluster_id, identity.broker) == ("another", 7)
    assert list(cluster.refresh().brokers) == [0]


@pytest.mark.parametrize("content", [b"{", b"[" * 60_000, b'{"format":1}'])
def test_a_location_with_an_unreadable_identity_is_not_claimed(content: bytes) -> None:
    location = MemoryStore(uuid.uuid4().hex)
    location.put(IDENTITY_KEY, content)
    cluster = create_cluster(MemoryStore(uuid.uuid4().hex))
    with pytest.raises(CorruptMetadataError, match=f"{location.root}/{IDENTITY_KEY} cannot be read"):
        add_broker(cluster, location.root)
    assert location.get(IDENTITY_KEY) == content
    assert list(cluster.refresh().brokers) == [0]


@pytest.mark.parametrize("kind", ["lost_answer", "done+permission", "done+exists"])
def test_a_claim_stored_without_a_success_response_is_read_back(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = MemoryStore(uuid.uuid4().hex)
    create_cluster(inner)
    coordinator = open_cluster(inner)
    counted = FaultyStore(MemoryStore(uuid.uuid4().hex))
    monkeypatch.setattr(coordinator.brokers, "open", lambda url: counted)
    add_broker(coordinator, "memory://first")
    step = [call.operation for call in counted.calls].index("put_if_absent")
    location = FaultyStore(MemoryStore(uuid.uuid4().hex), [Fault(step, kind)])
    monkeypatch.setattr(coordinator.brokers, "open", lambda url: location)
    assert add_broker(coordinator, "memory://second") == 2
    assert location.injected == [Fault(step, kind)]
