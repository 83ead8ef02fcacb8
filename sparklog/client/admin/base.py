"""The base of the parts of ``AdminClient``: the cluster, whether the client is open, one commit for many requests, and
the deadline of a call.

Not for: the requests themselves.
"""

from __future__ import annotations

import functools
import inspect
import logging
import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from sparklog.client.admin.types import error_code
from sparklog.client.consumer.subscription_state import as_seconds
from sparklog.client.deadlines import call_within
from sparklog.coordinator import Coordinator
from sparklog.errors import IllegalStateError, InvalidArgumentTypeError, InvalidRequestError, SparklogError
from sparklog.log.reserve import with_reserve
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.state import State
from sparklog.types import as_python

logger = logging.getLogger(__name__)

UNKNOWN_OPERATIONS = -(2**31)
"""Kafka's value when the authorized operations were not requested."""

NO_TOPIC_ID = "A" * 22
"""Kafka's zero id, which stands for no topic id."""

ErrorClass = type[SparklogError]

Result = dict[str, Any]
"""A result as in kafka-python: a response of Kafka as a dict."""


class Response(dict[str, Any]):
    """A result that can be read as a dict and as the responses of kafka-python: by attribute, by field number, and with
    ``to_dict()``."""

    def __missing__(self, field: object) -> Any:
        if isinstance(field, int):
            return list(self.values())[field]
        raise KeyError(field)

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def to_dict(self) -> Result:
        """Return the response as plain dicts."""
        return {name: _plain(value) for name, value in self.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.to_dict() if isinstance(value, Response) else value


class RequestOutcome(NamedTuple):
    """The outcome of one of several requests."""

    name: str
    result: Any
    error: SparklogError | None


def error_codes(error: SparklogError | None) -> Result:
    """Return the ``error_code`` and ``error_message`` of a response."""
    return {"error_code": error_code(error), "error_message": None if error is None else error.message}


class AdminBase:
    """The cluster that an admin client works on. Thread-safe."""

    _coordinator: Coordinator
    _closed: bool = False
    _request_timeout: float = math.inf
    """Seconds that a call without a ``timeout_ms`` may take."""

    def _opened(self) -> Coordinator:
        """Return the coordinator. Raises IllegalStateError once the client is closed."""
        if self._closed:
            raise IllegalStateError("this AdminClient is closed; create a new one")
        return self._coordinator

    def read_state(self) -> State:
        """Return the newest state of the cluster: all its topics, brokers, configs and groups at one version."""
        return self._opened().refresh()

    def _submit_all(
        self,
        names: Sequence[str],
        decide: Callable[[State, int], Decision[object]],
        validate_only: bool,
        raise_errors: bool,
        all_or_none: bool = False,
        frees_space: bool = False,
    ) -> list[RequestOutcome]:
        """Decide the request of each name by its index, and commit all that succeed in one commit.

        ``decide`` gets the state without the effects of the earlier requests and has to account for them itself. With
        ``raise_errors`` the first error is raised after the other requests were committed, as in Kafka; with
        ``all_or_none`` it is raised and nothing is committed. Requests that ``frees_space`` get the reserve of a full
        disk; any other would only take it from them.
        """
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise InvalidRequestError(f"{repeated[0]!r} is named more than once in one request; name it once")

        def decide_all(state: State) -> Decision[list[RequestOutcome]]:
            actions: list[Any] = []
            outcomes: list[RequestOutcome] = []
            for index, name in enumerate(names):
                try:
                    decision = decide(state, index)
                except SparklogError as error:
                    if all_or_none:
                        raise
                    outcomes.append(RequestOutcome(name, None, error))
                else:
                    actions += decision.actions
                    outcomes.append(RequestOutcome(name, decision.result, None))
            return Decision(actions, outcomes)

        if validate_only:
            outcomes = decide_all(self.read_state()).result
        else:
            coordinator = self._opened()
            outcomes = (
                with_reserve(coordinator.store, lambda: coordinator.submit(decide_all))
                if frees_space
                else coordinator.submit(decide_all)
            )
        failed = next((outcome.error for outcome in outcomes if outcome.error is not None), None)
        if raise_errors and failed is not None:
            raise failed
        return outcomes


_WITHOUT_DEADLINE = frozenset({"close", "bootstrap_connected", "wait_for_topics"})
"""Methods that do not use the storage, and ``wait_for_topics``, which watches its ``timeout_ms`` itself."""

_Client = TypeVar("_Client", bound=type[AdminBase])

_current_call = threading.local()
"""Whether this thread is in a call that has a deadline already: public methods call each other."""


def with_deadlines(client: _Client) -> _Client:
    """Give each public method of a class a deadline, except those in ``_WITHOUT_DEADLINE``."""
    for name, method in inspect.getmembers(client, inspect.isfunction):
        if not name.startswith("_") and name not in _WITHOUT_DEADLINE:
            setattr(client, name, _add_deadline(name, method))
    return client


def _add_deadline(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(self: AdminBase, *args: Any, **options: Any) -> Any:
        if getattr(_current_call, "active", False):
            return method(self, *args, **options)
        timeout_ms = inspect.signature(method).bind(self, *args, **options).arguments.get("timeout_ms")

        def run() -> Any:
            _current_call.active = True
            try:
                return method(self, *args, **options)
            finally:
                _current_call.active = False

        seconds = as_seconds(timeout_ms) if timeout_ms else self._request_timeout
        return call_within(seconds, run, f"AdminClient.{name}()")

    return call


def warn_of(topic: str, lines: Iterable[str]) -> None:
    """Log warnings about configs of a topic, or of the cluster (empty). The command line prints their ``note``."""
    for line in lines:
        logger.warning("%s: %s", f"topic {topic}" if topic else "the cluster", line, extra={"note": line})


def as_list(given: Iterable[Any], what: str) -> list[Any]:
    """Return the items of a list, also of an array of numpy. A single string is refused, not read as a list of
    letters."""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise InvalidArgumentTypeError(f"{what}={given!r}: give a list")
    return [as_python(item) for item in given]


def text_configs(configs: Mapping[str, object]) -> dict[str, str]:
    """Return configs as the text that is stored: true and false in lower case, as in Kafka."""
    values = {as_python(name): as_python(value) for name, value in configs.items()}
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in values.items()}
