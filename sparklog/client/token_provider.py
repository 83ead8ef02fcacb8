"""The base class of token providers, for programs that log in to Kafka and move here with their class.

Rules: kafka-python's interface. Not for: logging in; there is no server, and the storage has credentials of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod


class AbstractTokenProvider(ABC):
    """Gives tokens for ``sasl_oauth_token_provider``. It is never asked for one."""

    def __init__(self, **config: object) -> None:  # noqa: B027 # programs call it with super()
        """Takes anything."""

    @abstractmethod
    def token(self) -> str:
        """A token."""

    def extensions(self) -> dict[str, str]:
        """What is sent with the token."""
        return {}
