"""What the parts of ``AdminClient`` share: the cluster, whether the client is open, one commit for many requests, and
the time that a call may take."""

from __future__ import annotations

import functools
import inspect
import math
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from sparklog.client.admin.types import error_code
from sparklog.client.consumer.subscription_state import as_seconds
from sparklog.client.deadlines import call_within
from sparklog.coordinator import Coordinator
from sparklog.errors import IllegalStateError, InvalidRequestError, SparklogError
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.state import State

UNKNOWN_OPERATIONS = -(2**31)
"""What Kafka answers where it was not asked which operations the caller is authorized for."""

Result = dict[str, Any]
"""A result as kafka-python has it: a response of Kafka's as a dict."""


class Response(dict[str, Any]):
    """A result that is read as a dict, and as kafka-python's responses are: by attributes, by the number of a field,
    and with ``to_dict()``."""

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
        """The same in plain dicts."""
        return {name: _plain(value) for name, value in self.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value.to_dict() if isinstance(value, Response) else value


class Answer(NamedTuple):
    """What one of many requests came to."""

    name: str
    result: Any
    error: SparklogError | None

    def codes(self) -> Result:
        """``error_code`` and ``error_message`` of a response."""
        return {
            "error_code": error_code(self.error),
            "error_message": None if self.error is None else self.error.message,
        }


class AdminBase:
    """The cluster that an admin client works on. Thread-safe."""

    _coordinator: Coordinator
    _closed: bool = False
    _request_timeout: float = math.inf
    """seconds that a call may take which has no ``timeout_ms`` of its own"""

    def _opened(self) -> Coordinator:
        """The coordinator. Raises IllegalStateError once the client is closed."""
        if self._closed:
            raise IllegalStateError("this AdminClient is closed; open another")
        return self._coordinator

    def _state(self) -> State:
        """The newest state of the cluster."""
        return self._opened().refresh()

    def _together(
        self,
        names: Sequence[str],
        decide: Callable[[State, int], Decision],
        validate_only: bool,
        raise_errors: bool,
    ) -> list[Answer]:
        """Decide a request for each name, by its place, and commit those that can be in one commit.

        ``decide`` has to tell by itself what the requests before it in the list change. With ``raise_errors`` the first
        error is raised, once the others are committed, as Kafka does it.
        """
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise InvalidRequestError(f"{repeated[0]!r} is named more than once in one request; name it once")

        def decide_all(state: State) -> Decision:
            actions: list[Any] = []
            answers: list[Answer] = []
            for place, name in enumerate(names):
                try:
                    decision = decide(state, place)
                except SparklogError as error:
                    answers.append(Answer(name, None, error))
                else:
                    actions += decision.actions
                    answers.append(Answer(name, decision.result, None))
            return Decision(actions, answers)

        answers: list[Answer]
        if validate_only:
            answers = decide_all(self._state()).result
        else:
            answers = self._opened().submit(decide_all)
        failed = next((answer.error for answer in answers if answer.error is not None), None)
        if raise_errors and failed is not None:
            raise failed
        return answers


_Client = TypeVar("_Client", bound=type[AdminBase])

_within_a_call = threading.local()
"""Whether this thread makes a call that has its time already: methods call each other."""


def with_deadlines(without: Collection[str]) -> Callable[[_Client], _Client]:
    """Give each public method of a client its time, but not those ``without``: they ask no storage."""

    def decorate(client: _Client) -> _Client:
        for name, method in inspect.getmembers(client, inspect.isfunction):
            if not name.startswith("_") and name not in without:
                setattr(client, name, _in_time(name, method))
        return client

    return decorate


def _in_time(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(method)

    @functools.wraps(method)
    def call(self: AdminBase, *args: Any, **options: Any) -> Any:
        if getattr(_within_a_call, "active", False):
            return method(self, *args, **options)
        given = signature.bind(self, *args, **options).arguments.get("timeout_ms")

        def run() -> Any:
            _within_a_call.active = True
            try:
                return method(self, *args, **options)
            finally:
                _within_a_call.active = False

        seconds = as_seconds(given) if given else self._request_timeout
        return call_within(seconds, run, f"AdminClient.{name}()")

    return call


def text_configs(configs: Mapping[str, object]) -> dict[str, str]:
    """Configs as the text they are stored as: true and false in lower case, as Kafka writes them."""
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in configs.items()}
