"""The base class of token providers, for programs written for Kafka that define one.

Rules: the interface is kafka-python's. Not for: authentication; there is no server, and the storage has its own
credentials.
"""

from __future__ import annotations

from abc import ABC, abstractmethod


class AbstractTokenProvider(ABC):
    """Provides tokens for ``sasl_oauth_token_provider``. Its methods are never called."""

    def __init__(self, **config: object) -> None:  # noqa: B027 # programs call it with super()
        """Accept any arguments."""

    @abstractmethod
    def token(self) -> str:
        """Return a token."""

    def extensions(self) -> dict[str, str]:
        """Return the SASL extensions to send with the token."""
        return {}
