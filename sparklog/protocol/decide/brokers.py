"""What a coordinator answers to requests about brokers, which are storage locations, and about the controller.

Rules: as in ``decide``. Addresses come in as stores spell them; whether a location is fit for it is looked at before.
Not for: what follows when a broker goes offline (``elections``), replicas that move (``decide_replicas``).
"""

from __future__ import annotations

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
from sparklog.protocol.state import BrokerState, State
from sparklog.types import TopicPartition

MAX_BROKER_ID = 2**31 - 1


def location(broker: BrokerState, root: str) -> str:
    """Where a broker is."""
    return broker.url or root


def register_broker(state: State, broker: int | None, url: str, root: str) -> Decision:
    """Register a location under an id, the next free one for None; the result is the id.

    Raises InvalidRequestError, DuplicateBrokerRegistrationError.
    """
    number = max(state.brokers, default=-1) + 1 if broker is None else broker
    if not 0 <= number <= MAX_BROKER_ID:
        raise InvalidRequestError(f"broker id {number} is not in 0 to {MAX_BROKER_ID}; choose another, or leave it out")
    if number in state.brokers:
        raise DuplicateBrokerRegistrationError(
            f"broker {number} is {location(state.brokers[number], root)} already; choose another id, or leave it out",
            broker=number,
        )
    check_apart(state, url, root, number)
    return Decision([RegisterBroker(broker=number, url=url)], number)


def check_apart(state: State, url: str, root: str, number: int = -1) -> None:
    """No two locations overlap, that of broker ``number`` aside: what one deletes would be the other's.

    Raises DuplicateBrokerRegistrationError.
    """
    taken = {location(broker, root): f"broker {other}" for other, broker in state.brokers.items() if other != number}
    for place, whose in {root: "the root of the cluster", **taken}.items():
        if url == place:
            raise DuplicateBrokerRegistrationError(f"{url} is {whose} already; give another location", path=url)
        if f"{url}/".startswith(f"{place}/") or f"{place}/".startswith(f"{url}/"):
            raise DuplicateBrokerRegistrationError(
                f"{url} and {place}, which is {whose}, lie one inside the other; give a location apart from all others",
                path=url,
            )


def known_broker(state: State, broker: int) -> BrokerState:
    """The broker, or BrokerIdNotRegisteredError."""
    found = state.brokers.get(broker)
    if found is None:
        raise BrokerIdNotRegisteredError(
            f"there is no broker {broker}; there are {sorted(state.brokers)}", broker=broker
        )
    return found


def unregister_broker(state: State, broker: int) -> Decision:
    """Let a location go that holds no replica. Raises BrokerIdNotRegisteredError, PolicyViolationError."""
    if not known_broker(state, broker).url:
        raise PolicyViolationError(f"broker {broker} is the root of the cluster, which stays", broker=broker)
    held = replicas_on(state, broker)
    if held:
        shown = ", ".join(map(str, held[:5])) + (", …" if len(held) > 5 else "")
        raise PolicyViolationError(
            f"broker {broker} holds replicas of {len(held)} partitions ({shown}); move them to other brokers first "
            "(sparklog reassign-partitions)",
            broker=broker,
        )
    return Decision([UnregisterBroker(broker=broker)], None)


def replicas_on(state: State, broker: int) -> list[TopicPartition]:
    """The partitions that a broker holds a replica of, or is to."""
    return [
        TopicPartition(topic.name, number)
        for topic in state.topics_in_order()
        for number, partition in enumerate(topic.partitions)
        if broker in partition.replicas
    ]


def cordon(state: State, broker: int, cordoned: bool) -> Decision:
    """Let a broker keep its replicas and get no new ones, or lift that. Raises BrokerIdNotRegisteredError."""
    if known_broker(state, broker).cordoned == cordoned:
        return Decision([], False)
    return Decision([ChangeBroker(broker=broker, cordoned=cordoned)], True)


def move_broker(state: State, broker: int, url: str, root: str) -> Decision:
    """Say where a location is now, whose files were moved or are mounted elsewhere. Errors as ``register_broker``."""
    found = known_broker(state, broker)
    if location(found, root) == url:
        return Decision([], False)
    check_apart(state, url, root, broker)
    return Decision([ChangeBroker(broker=broker, url=url)], True)


def may_lack(state: State, broker: int, path: str) -> bool:
    """Whether a file that a broker got may be gone: begun before its location was found to have lost files."""
    found = state.brokers.get(broker)
    return found is not None and found.lost_files_at >= 0 and begun_at(path) < found.lost_files_at


# -- the controller


def elect_controller(state: State, controller: str, after_epoch: int) -> Decision:
    """Take over from the controller of ``after_epoch``; the result is the new epoch.

    Raises ControllerMovedError where somebody else was faster.
    """
    if state.controller.epoch != after_epoch:
        raise _moved(state, after_epoch)
    epoch = after_epoch + 1
    return Decision([ElectController(controller=controller, controller_epoch=epoch)], epoch)


def check_controller(state: State, epoch: int) -> None:
    """Raises ControllerMovedError unless this is the epoch of the newest controller."""
    if state.controller.epoch != epoch:
        raise _moved(state, epoch)


def _moved(state: State, epoch: int) -> ControllerMovedError:
    return ControllerMovedError(
        f"controller epoch {epoch} is over: {state.controller.controller or 'nobody'} is the controller of epoch "
        f"{state.controller.epoch}",
        controller_epoch=epoch,
    )
