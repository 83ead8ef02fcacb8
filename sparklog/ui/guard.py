"""Who may see and do what: an ASGI middleware before all pages.

* The Host header names an allowed host, so that no page of another site reaches this one by a name of its own.
* With a token, a browser signs in once and has a session; programs send ``Authorization: Bearer TOKEN``.
* Behind a proxy that signs in its users, requests come from it and have its header.
* A change is a POST with the form's CSRF token, from this site.
* Responses forbid whatever the pages do not need.

Rules: secrets are compared in constant time; nothing secret is in an address. Not for: what pages show.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sparklog.clock import Clock
from sparklog.ids import Ids

SESSION_COOKIE = "sparklog_session"
SESSION_MS = 12 * 3_600_000
"""ms after which a browser signs in again."""
MAX_FAILURES = 20
"""Wrong tokens within ``FAILURE_MS`` after which none is accepted for the rest of it."""
FAILURE_MS = 60_000
MAX_FORM_BYTES = 2 * 1024 * 1024
MIN_TOKEN_LENGTH = 16

LOGIN_PATH = "/login"
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True)
class Access:
    """Who may use the pages. ``hosts`` are the names that the Host header may have, without ports.

    ``token`` is what a browser signs in with, empty for none; ``proxy_header`` is the header in which a proxy at one of
    ``proxies`` names its user, empty for none.
    """

    hosts: frozenset[str] = frozenset(LOOPBACK)
    token: str = field(default="", repr=False)
    proxy_header: str = ""
    proxies: frozenset[str] = frozenset()
    secure_cookies: bool = False


class Sessions:
    """Signed cookies of this process. Thread-safe: requests are handled on one event loop."""

    def __init__(self, access: Access, clock: Clock, ids: Ids) -> None:
        self.access = access
        self._clock = clock
        self._ids = ids
        self._key = hashlib.sha256("".join(ids.write_id() for _ in range(3)).encode()).digest()
        self._failures: list[int] = []

    def new_session(self) -> str:
        """Return the value of a new session's cookie."""
        text = f"{self._clock.now_ms() + SESSION_MS}.{self._ids.write_id()}"
        return f"{text}.{self._sign('session', text)}"

    def is_session(self, cookie: str) -> bool:
        """Return whether a cookie is a session of this process that has not ended."""
        text, _, signature = cookie.rpartition(".")
        ends = text.partition(".")[0]
        if not text or not hmac.compare_digest(signature.encode(), self._sign("session", text).encode()):
            return False
        return ends.isdigit() and int(ends) > self._clock.now_ms()

    def csrf(self, cookie: str) -> str:
        """Return the token that the forms of a session contain."""
        return self._sign("csrf", cookie)

    def is_csrf(self, cookie: str, token: str) -> bool:
        """Return whether a form is one of this session's."""
        return bool(cookie) and hmac.compare_digest(token.encode(), self.csrf(cookie).encode())

    def is_token(self, token: str) -> bool:
        """Return whether a token is the right one; after too many wrong ones none is, for a minute."""
        now_ms = self._clock.now_ms()
        self._failures = [at for at in self._failures if abs(now_ms - at) < FAILURE_MS]
        if not self.access.token or len(self._failures) >= MAX_FAILURES:
            return False
        is_right = hmac.compare_digest(token.encode("utf-8", "replace"), self.access.token.encode())
        if not is_right:
            self._failures.append(now_ms)
        return is_right

    def _sign(self, purpose: str, text: str) -> str:
        return hmac.new(self._key, f"{purpose}:{text}".encode(), hashlib.sha256).hexdigest()


class Guard:
    """Refuses what the rules of access do not allow, and adds the headers of security to every response."""

    def __init__(self, app: ASGIApp, sessions: Sessions) -> None:
        self._app = app
        self._sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        session = session_of(headers)
        is_known = self._sessions.is_session(session)
        refusal = self._refuse(scope, headers, is_known)
        if not is_known and refusal is None and not scope["path"].startswith("/static/"):
            session = self._sessions.new_session()
        scope["session_cookie"] = session
        set_cookie = refusal is None and not is_known and not self._sessions.access.token

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                out = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    out[name] = value
                out.setdefault("cache-control", "no-store")
                if set_cookie and not scope["path"].startswith("/static/"):
                    out.append("set-cookie", cookie_of(session, self._sessions.access.secure_cookies))
            await send(message)

        await (refusal or self._app)(scope, receive, send_safely)

    def _refuse(self, scope: Scope, headers: Headers, is_known: bool) -> Response | None:
        """Return the answer to a request that is not allowed, None if it is."""
        access = self._sessions.access
        if host_name(headers.get("host", "")) not in access.hosts or len(headers.getlist("host")) != 1:
            return PlainTextResponse("Unknown host: allow it with --allow-host NAME.\n", 421)
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return PlainTextResponse("Method not allowed.\n", 405, {"allow": "GET, HEAD, POST"})
        if access.proxy_header:
            client = (scope.get("client") or ("", 0))[0]
            if client not in access.proxies or not headers.get(access.proxy_header):
                return PlainTextResponse("Sign in at the proxy in front of this page.\n", 401)
        path = scope["path"]
        if access.token and not is_known and path != LOGIN_PATH and not path.startswith("/static/"):
            scheme, _, token = headers.get("authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not self._sessions.is_token(token.strip()):
                return self._ask_to_sign_in(scope, headers)
        if scope["method"] == "POST" and not _is_same_site(headers):
            return PlainTextResponse("Refused: the form is of another site.\n", 403)
        return None

    def _ask_to_sign_in(self, scope: Scope, headers: Headers) -> Response:
        if scope["method"] == "GET" and "text/html" in headers.get("accept", ""):
            return RedirectResponse(LOGIN_PATH, 303)
        return PlainTextResponse("Sign in: send Authorization: Bearer TOKEN.\n", 401, {"www-authenticate": "Bearer"})


def host_name(host: str) -> str:
    """Return the name in a Host header, without its port: ``[::1]`` of ``[::1]:8484``."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[: host.find("]") + 1]
    return host.partition(":")[0]


def hosts_of(address: str, allowed: Iterable[str]) -> frozenset[str]:
    """Return the host names that a page at this address answers to: its own, those of loopback, and ``allowed``."""
    own = f"[{address}]" if ":" in address else address
    return frozenset({own.lower(), *LOOPBACK, *(host_name(name) for name in allowed)}) - {"0.0.0.0", "[::]", ""}


def session_of(headers: Headers) -> str:
    """Return the session's cookie of a request, empty without one."""
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(SESSION_COOKIE)
    except CookieError:
        return ""
    return morsel.value if morsel is not None and morsel.value.isascii() else ""


def cookie_of(session: str, secure: bool) -> str:
    """Return the Set-Cookie header of a session."""
    return f"{SESSION_COOKIE}={session}; Path=/; HttpOnly; SameSite=Strict{'; Secure' if secure else ''}"


def _is_same_site(headers: Headers) -> bool:
    """Return whether a form comes from this site, as far as the browser says; its CSRF token proves it."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = headers.get("origin", "")
    return origin in ("", "null") or host_name(origin.partition("://")[2]) == host_name(headers.get("host", ""))
