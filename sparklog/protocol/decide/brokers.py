"""Decisions about brokers, which are storage locations, and about the controller.

Rules: as in ``decide``. URLs are spelled as stores normalize them; the caller has checked that the location is usable.
Not for: the consequences of a broker going offline (``elections``), of a location that is replaced, moved or cleaned
(``locations``), reassignment of replicas (``replicas``).
"""

from __future__ import annotations

from collections.abc import Mapping

from sparklog.errors import (
    BrokerIdNotRegisteredError,
    ControllerMovedError,
    DuplicateBrokerRegistrationError,
    InvalidRequestError,
    PolicyViolationError,
)
from sparklog.protocol.commits import ChangeBroker, ElectController, RegisterBroker, UnregisterBroker
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.file_names import begun_at
from sparklog.protocol.plan.reassignment import replicas_on
from sparklog.protocol.state import BrokerState, State

MAX_BROKER_ID = 2**31 - 1

NO_LINKS: Mapping[str, str] = {}


def location(broker: BrokerState, root: str) -> str:
    """Return the folder or URL of a broker."""
    return broker.url or root


def register_broker(
    state: State,
    broker: int | None,
    url: str,
    root: str,
    real: Mapping[str, str] = NO_LINKS,
    has_files: bool = False,
) -> Decision[int]:
    """Register a location under an id, the next free one for None; the result is the id. ``real`` as in
    ``check_apart``.

    The id may have been another location's: files begun before, which name it, do not count as copies here. A location
    that ``has_files`` is cordoned: it may have been registered before, and a vacuum that was suspended since then would
    delete what becomes live there again under the same name.

    Raises InvalidRequestError, DuplicateBrokerRegistrationError.
    """
    number = max(state.brokers, default=-1) + 1 if broker is None else broker
    if not 0 <= number <= MAX_BROKER_ID:
        raise InvalidRequestError(
            f"invalid broker id {number}: it must be from 0 to {MAX_BROKER_ID}; choose another, or leave it out"
        )
    if number in state.brokers:
        raise DuplicateBrokerRegistrationError(
            f"broker {number} is already registered at {location(state.brokers[number], root)}; choose another id, or "
            "leave it out",
            broker=number,
        )
    check_apart(state, url, root, number, real)
    change = ChangeBroker(broker=number, lost_files=True, cordoned=True if has_files else None)
    return Decision([RegisterBroker(broker=number, url=url), change], number)


def check_apart(state: State, url: str, root: str, number: int = -1, real: Mapping[str, str] = NO_LINKS) -> None:
    """Check that ``url`` overlaps no other location, ignoring broker ``number``: one would delete the other's files.

    ``real`` has the paths of local locations without symbolic links, which may lead into another location. Raises
    DuplicateBrokerRegistrationError.
    """
    taken = {location(broker, root): f"broker {other}" for other, broker in state.brokers.items() if other != number}
    for other_url, owner in {root: "the root of the cluster", **taken}.items():
        here, there = real.get(url, url), real.get(other_url, other_url)
        if here == there:
            raise DuplicateBrokerRegistrationError(f"{url} is already {owner}; give another location", path=url)
        if f"{here}/".startswith(f"{there}/") or f"{there}/".startswith(f"{here}/"):
            raise DuplicateBrokerRegistrationError(
                f"{url} and {other_url}, which is {owner}, are nested; give a location outside all others",
                path=url,
            )


def find_broker(state: State, broker: int) -> BrokerState:
    """Return the broker, or raise BrokerIdNotRegisteredError."""
    broker_state = state.brokers.get(broker)
    if broker_state is None:
        raise BrokerIdNotRegisteredError(
            f"broker {broker} is not registered; registered brokers: {sorted(state.brokers)}", broker=broker
        )
    return broker_state


def is_online(state: State, broker: int) -> bool:
    return broker in state.brokers and state.brokers[broker].online


def online_brokers(state: State) -> set[int]:
    return {number for number, broker in state.brokers.items() if broker.online}


def check_still_at(state: State, broker: int, url: str) -> None:
    """Raise DuplicateBrokerRegistrationError if a broker has another address than it had: it was moved, or another
    location got its id; BrokerIdNotRegisteredError if there is none."""
    present = find_broker(state, broker).url
    if present != url:
        raise DuplicateBrokerRegistrationError(
            f"broker {broker} was at {url}, and is at {present} in the meantime; run the command again if that "
            "location is meant",
            broker=broker,
        )


def unregister_broker(state: State, broker: int, url: str) -> Decision[None]:
    """Remove a location that holds no replica, and has this address. Raises BrokerIdNotRegisteredError,
    PolicyViolationError, DuplicateBrokerRegistrationError as ``check_still_at``."""
    check_still_at(state, broker, url)
    if not url:
        raise PolicyViolationError(f"broker {broker} is the root of the cluster and cannot be removed", broker=broker)
    partitions = replicas_on(state, broker)
    if partitions:
        shown = ", ".join(map(str, partitions[:5])) + (", …" if len(partitions) > 5 else "")
        raise PolicyViolationError(
            f"broker {broker} holds replicas of {len(partitions)} partitions ({shown}); move them to other brokers "
            "first (sparklog reassign-partitions)",
            broker=broker,
        )
    return Decision([UnregisterBroker(broker=broker)], None)


def cordon(state: State, broker: int, cordoned: bool) -> Decision[bool]:
    """Cordon a broker, so that it keeps its replicas and gets no new ones, or lift that; the result is whether that is
    a change. Raises BrokerIdNotRegisteredError."""
    if find_broker(state, broker).cordoned == cordoned:
        return Decision([], False)
    return Decision([ChangeBroker(broker=broker, cordoned=cordoned)], True)


def stop_removal(state: State, broker: int, cordoned: bool) -> Decision[None]:
    """Cordon a broker or lift that, where a removal of surplus copies may have cordoned it: that one stops for good.

    As the removal's, this commit makes worthless what was known of files there. Raises BrokerIdNotRegisteredError."""
    find_broker(state, broker)
    return Decision([ChangeBroker(broker=broker, lost_files=True, cordoned=cordoned)], None)


def move_broker(state: State, broker: int, url: str, root: str, real: Mapping[str, str] = NO_LINKS) -> Decision[bool]:
    """Set the URL of a location whose files were moved or are mounted elsewhere. Raises as ``register_broker``.

    Not for: whether its files are there (``locations.move_location``)."""
    if location(find_broker(state, broker), root) == url:
        return Decision([], False)
    check_apart(state, url, root, broker, real)
    return Decision([ChangeBroker(broker=broker, url=url)], True)


def may_lack(state: State, broker: int, path: str) -> bool:
    """Return whether a file may be missing at a broker: it was begun before the location was registered, replaced or
    moved, or was found to have lost files; or the broker was removed since."""
    broker_state = state.brokers.get(broker)
    if broker_state is None:
        return True
    return broker_state.lost_files_at >= 0 and begun_at(path) < broker_state.lost_files_at


# -- the controller


def elect_controller(state: State, controller: str, after_epoch: int) -> Decision[int]:
    """Take over from the controller of ``after_epoch``; the result is the new epoch.

    Raises ControllerMovedError if another process took over first.
    """
    if state.controller.epoch != after_epoch:
        raise _moved(state, after_epoch)
    epoch = after_epoch + 1
    return Decision([ElectController(controller=controller, controller_epoch=epoch)], epoch)


def check_controller(state: State, epoch: int) -> None:
    """Raise ControllerMovedError unless this is the epoch of the current controller."""
    if state.controller.epoch != epoch:
        raise _moved(state, epoch)


def _moved(state: State, epoch: int) -> ControllerMovedError:
    return ControllerMovedError(
        f"controller epoch {epoch} is fenced: the current epoch is {state.controller.epoch}, of "
        f"{state.controller.controller or 'no controller'}",
        controller_epoch=epoch,
    )
