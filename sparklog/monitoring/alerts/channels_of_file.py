"""Channels of a file of rules: who is told about alerts, and how (``[channel.NAME]``).

A channel is a webhook (``url``), a command (``command``, a list: no shell parses it) or e-mail (``to``, ``host``).
Secrets are named and not written: ``headers_from`` and ``password_from`` name variables of the environment.

Rules: pure. Not for: sending (``channels``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from sparklog.errors import InvalidConfigurationError
from sparklog.errors.suggestions import did_you_mean
from sparklog.monitoring.alerts.quantities import Unit, parse

DEFAULT_TIMEOUT_SECONDS = 10.0
MAX_TIMEOUT_SECONDS = 300.0


class Webhook(NamedTuple):
    """An address that gets each notification as a POST of JSON."""

    url: str
    headers: Mapping[str, str]
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS


class Command(NamedTuple):
    """A program that gets each notification as JSON on standard input."""

    arguments: tuple[str, ...]
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS


class Mail(NamedTuple):
    """An e-mail to each of ``to``, by the server at ``host``. ``security``: ``starttls``, ``tls`` or ``none``."""

    to: tuple[str, ...]
    sender: str
    host: str
    port: int
    security: str
    user: str = ""
    password: str = ""
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS


Channel = Webhook | Command | Mail

_KEYS = {
    "webhook": ("url", "headers", "headers_from"),
    "command": ("command",),
    "email": ("to", "from", "host", "port", "security", "user", "password_from"),
}
_PORTS = {"starttls": 587, "tls": 465, "none": 25}


def read_channel(name: str, given: object, environ: Mapping[str, str]) -> Channel:
    """Return a channel of the file. Raises InvalidConfigurationError."""
    where = f"channel {name!r}"
    if not isinstance(given, Mapping):
        raise InvalidConfigurationError(f"{where}: write it as [channel.{name}]", config=name)
    kind = given.get("type")
    if not isinstance(kind, str) or kind not in _KEYS:
        hint = did_you_mean(str(kind), _KEYS)
        raise InvalidConfigurationError(
            f"{where}: invalid type {kind!r}: must be one of {', '.join(_KEYS)}{hint}", config="type"
        )
    keys = ("type", "timeout", *_KEYS[kind])
    for key in given:
        if key not in keys:
            raise InvalidConfigurationError(
                f"{where}: unknown key {key!r}{did_you_mean(key, keys)}; a {kind} takes {', '.join(keys)}", config=key
            )
    reader = _Reader(where, given, environ)
    timeout = reader.timeout()
    if kind == "webhook":
        return _read_webhook(reader, timeout)
    if kind == "command":
        return Command(reader.texts("command"), timeout)
    return _read_mail(reader, timeout)


class _Reader:
    """The keys of one channel, with errors that name it."""

    def __init__(self, where: str, given: Mapping[str, Any], environ: Mapping[str, str]) -> None:
        self._where = where
        self.given = given
        self._environ = environ

    def invalid(self, key: str, why: str) -> InvalidConfigurationError:
        value = f" {self.given[key]!r}" if key in self.given else ""
        return InvalidConfigurationError(f"{self._where}: invalid {key}{value}: {why}", config=key)

    def timeout(self) -> float:
        try:
            seconds = parse(self.given.get("timeout", "10s"), Unit.SECONDS)
        except ValueError as error:
            raise self.invalid("timeout", str(error)) from None
        if not 0 < seconds <= MAX_TIMEOUT_SECONDS:
            raise self.invalid("timeout", "must be more than 0 and at most 5m")
        return seconds

    def text(self, key: str, default: str | None = None) -> str:
        value = self.given.get(key, default)
        if not isinstance(value, str) or (not value and default is None) or not value.isprintable():
            raise self.invalid(key, "must be a text on one line")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.given.get(key)
        if not isinstance(value, list) or not value or not all(isinstance(text, str) for text in value):
            raise self.invalid(key, "must be a list of texts that is not empty")
        if not value[0] or any("\0" in text for text in value):
            raise self.invalid(key, "the first text must not be empty, and none may have NUL characters")
        return tuple(value)

    def mapping(self, key: str) -> dict[str, str]:
        value = self.given.get(key, {})
        texts = value.items() if isinstance(value, Mapping) else [("", "\n")]
        if not all(isinstance(text, str) and f"{name}{text}".isprintable() for name, text in texts):
            raise self.invalid(key, "must be a table of texts on one line")
        return dict(value)

    def secret(self, key: str, variable: str) -> str:
        value = self._environ.get(variable)
        if not value or not value.isprintable():
            raise self.invalid(key, f"the environment variable {variable} is not set to a text on one line")
        return value


def _read_webhook(reader: _Reader, timeout: float) -> Webhook:
    url = reader.text("url")
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid or " " in url:
        raise reader.invalid("url", "must be an http or https address")
    if parts.username is not None or parts.password is not None:
        raise reader.invalid("url", "must have no user and password: name a header in headers_from")
    secrets = {
        name: reader.secret("headers_from", variable) for name, variable in reader.mapping("headers_from").items()
    }
    return Webhook(url, {**reader.mapping("headers"), **secrets}, timeout)


def _read_mail(reader: _Reader, timeout: float) -> Mail:
    to = reader.texts("to")
    sender = reader.text("from")
    for key, addresses in (("to", to), ("from", (sender,))):
        if not all("@" in address and address.isprintable() and " " not in address for address in addresses):
            raise reader.invalid(key, "must be mail addresses, such as ops@example.org")
    security = reader.text("security", "starttls")
    if security not in _PORTS:
        raise reader.invalid("security", f"must be one of {', '.join(_PORTS)}")
    port = reader.given.get("port", _PORTS[security])
    if not isinstance(port, int) or isinstance(port, bool) or not 0 < port < 65_536:
        raise reader.invalid("port", "must be 1 to 65535")
    user, variable = reader.text("user", ""), reader.text("password_from", "")
    if bool(user) != bool(variable):
        raise reader.invalid("password_from", "user and password_from belong together")
    if user and security == "none":
        raise reader.invalid("security", "a password is sent over starttls or tls alone")
    password = reader.secret("password_from", variable) if variable else ""
    return Mail(to, sender, reader.text("host"), port, security, user, password, timeout)
