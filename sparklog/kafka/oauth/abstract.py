"""The base class of token providers: ``kafka.oauth.abstract``. Nothing calls its methods: there is no server."""

from sparklog.client.token_provider import AbstractTokenProvider as AbstractTokenProvider
