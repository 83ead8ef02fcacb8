"""Base classes of all errors: the common behaviour, and Kafka's grouping by origin and by whether a retry may help.

Rules: ``retriable`` and ``invalid_metadata`` follow from the bases alone. An error of a broker's response defines its
number in its class statement, and its code if that is not its name in Kafka's spelling: NotControllerError has
NOT_CONTROLLER. Its docstring is its ``description``. Every error is picklable.

Not for: the errors themselves (``raised``, ``kafka``).
"""

from __future__ import annotations

from typing import Any, ClassVar

_PUBLIC_MODULE = "sparklog.errors"


class KafkaError(Exception):
    """Base of all errors. ``message`` says what happened, where, and what to do; ``context`` holds the details.

    Details are attributes as well: ``error.topic`` is None where no topic is concerned.

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
            cls.__module__ = _PUBLIC_MODULE  # the module that programs import, and that pickles name

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
"""The original name of ``KafkaError`` in this package."""


def _rebuild(kind: type[KafkaError], args: Any, context: dict[str, Any]) -> KafkaError:
    return kind(*args, **context)


class RetriableError(KafkaError):
    """The operation may succeed when it is retried."""

    retriable = True


class InvalidMetadataError(RetriableError):
    """The operation may succeed once the newest state of the cluster has been read."""

    invalid_metadata = True


kafka_errors: dict[int, type[BrokerResponseError]] = {}
"""The class of each number, NoError for 0. Two classes have 35: it maps to ``UnsupportedVersionError``."""


class BrokerResponseError(KafkaError):
    """An error with a number (``errno``), a code (``message`` of the class) and a meaning (``description``) in Kafka's
    protocol."""

    def __init_subclass__(cls, errno: int | None = None, code: str = "", **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if errno is not None:
            cls.errno, cls.message = errno, code or _code(cls.__name__)
            cls.description = " ".join((cls.__doc__ or "").split("\n\n")[0].split()).replace("``", "")
            kafka_errors.setdefault(errno, cls)


def _code(name: str) -> str:
    """Return Kafka's code for a class of this name: upper case with underscores, without ``Error``."""
    return "".join(f"_{char}" if char.isupper() else char.upper() for char in name.removesuffix("Error")).lstrip("_")


class AuthorizationError(BrokerResponseError):
    """The caller is not authorized."""
