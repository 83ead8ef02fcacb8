"""The token provider that programs derive from: ``kafka.sasl.oauth``. It is
never asked: there is no server to log in to."""

from __future__ import annotations

from sparklog.client.token_provider import AbstractTokenProvider

__all__ = ["AbstractTokenProvider"]
