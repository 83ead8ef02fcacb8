"""The base class of token providers: ``kafka.sasl.oauth``. Nothing calls its methods: there is no server."""

from sparklog.client.token_provider import AbstractTokenProvider as AbstractTokenProvider
