"""What all errors have in common, and Kafka's own grouping of them: by who made the error, and whether to try again.

Rules: ``retriable`` and ``invalid_metadata`` follow from the bases alone. An error of a broker's response says its
number and code where its class is defined, and its docstring is its ``description``. Every error is picklable.

Not for: the errors themselves (``raised``, ``kafka``).
"""

from __future__ import annotations

from typing import Any, ClassVar

_PUBLIC_MODULE = "sparklog.errors"


class KafkaError(Exception):
    """Base of every error here. ``message`` says what happened, where, and what to do; ``context`` holds the facts.

    Facts are attributes as well: ``error.topic`` is None where no topic is concerned.

        >>> try:
        ...     sparklog.scan("payments", root)
        ... except sparklog.errors.KafkaError as error:
        ...     print(type(error).__name__, error.topic, error.retriable)
        UnknownTopicOrPartitionError payments True
    """

    retriable: ClassVar[bool] = False
    invalid_metadata: ClassVar[bool] = False
    errno: ClassVar[int | None] = None
    description: ClassVar[str | None] = None
    message: str = ""

    def __init__(self, *args: Any, **context: Any) -> None:
        super().__init__(*args)
        if args:
            self.message = str(args[0])
        self.context = context

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__module__.startswith(_PUBLIC_MODULE + "."):
            cls.__module__ = _PUBLIC_MODULE  # where programs import it from, and what a pickle names

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.__dict__.get("context", {}).get(name)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, KafkaError):
            return NotImplemented
        return type(self) is type(other) and (self.args, self.context) == (other.args, other.context)

    def __hash__(self) -> int:
        return hash((type(self), self.message))

    def __str__(self) -> str:
        return super().__str__() if self.args else type(self).__name__

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.args, self.context))


KafkaError.__module__ = _PUBLIC_MODULE

SparklogError = KafkaError
"""The same under the name that this package began with."""


def _rebuild(kind: type[KafkaError], args: Any, context: dict[str, Any]) -> KafkaError:
    return kind(*args, **context)


class RetriableError(KafkaError):
    """What may work when it is tried again."""

    retriable = True


class InvalidMetadataError(RetriableError):
    """What may work once the newest state of the cluster has been read."""

    invalid_metadata = True


class BrokerResponseError(KafkaError):
    """An error that Kafka's protocol has a number for (``errno``), a code (``message`` of the class) and a meaning
    (``description``)."""

    def __init_subclass__(cls, errno: int | None = None, code: str = "", **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if errno is not None:
            cls.errno, cls.message = errno, code
            cls.description = " ".join((cls.__doc__ or "").split("\n\n")[0].split()).replace("``", "")


class AuthorizationError(BrokerResponseError):
    """Whoever asked is not allowed to."""
