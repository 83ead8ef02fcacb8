"""The base class of token providers: ``kafka.oauth``. Its
methods are never called: there is no server to authenticate to."""

from sparklog.client.token_provider import AbstractTokenProvider

__all__ = [
    "AbstractTokenProvider",
]
