"""Sends notifications: to a webhook, a command or by e-mail, all at once and none for longer than its time.

    for name, problem in send_all({"ops": (webhook, message)}, clock): ...

Rules: each channel has a thread of its own, so a slow one holds up no other. Its connection is cut off at its timeout,
also if something arrives all the time. A webhook's redirects are not followed, a command is started without a shell,
and both get untrusted names only in JSON.
Not for: who is told what, and retries (``evaluation``, ``alert_file``).
"""

from __future__ import annotations

import json
import os
import queue
import signal
import smtplib
import socket
import ssl
import subprocess
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, NamedTuple

from sparklog.clock import Clock
from sparklog.monitoring.alerts.channels_of_file import Channel, Command, Mail, Webhook
from sparklog.monitoring.alerts.notifications import NotificationText
from sparklog.types import printable

GRACE_SECONDS = 1.0
"""seconds beyond its timeout after which a channel that has not answered counts as failed."""
SHOWN_BYTES = 500
"""bytes of an answer or of standard error that an error shows."""


class Sent(NamedTuple):
    """What became of a channel's notification: ``problem`` is empty if it was sent."""

    channel: str
    problem: str


def send_all(messages: Mapping[str, tuple[Channel, NotificationText]], clock: Clock) -> Iterator[Sent]:
    """Send a message to each channel, by name; yield each outcome as it becomes known. Never raises."""
    results: queue.Queue[Sent] = queue.Queue()
    for name, (channel, message) in messages.items():
        try:
            threading.Thread(target=_send, args=(name, channel, message, results), daemon=True).start()
        except RuntimeError as error:  # there are too many threads
            results.put(Sent(name, printable(error)))
    begun = clock.monotonic()
    waiting = {name: begun + channel.timeout_seconds + GRACE_SECONDS for name, (channel, _) in messages.items()}
    while waiting:
        for name in [name for name, deadline in waiting.items() if deadline <= clock.monotonic()]:
            del waiting[name]
            yield Sent(name, f"no answer within {messages[name][0].timeout_seconds:.0f} s")
        with suppress(queue.Empty):
            sent = results.get(timeout=max(min(waiting.values(), default=0.0) - clock.monotonic(), 0.0))
            if waiting.pop(sent.channel, None) is not None:
                yield sent


def _send(name: str, channel: Channel, message: NotificationText, results: queue.Queue[Sent]) -> None:
    try:
        send(channel, message)
    except Exception as error:  # of libraries and servers: it belongs to this channel alone
        results.put(Sent(name, printable(f"{type(error).__name__}: {' '.join(str(error).split())}"[:SHOWN_BYTES])))
    else:
        results.put(Sent(name, ""))


def send(channel: Channel, message: NotificationText) -> None:
    """Send a message. Raises OSError, HTTPException or SMTPException, which are no errors of sparklog."""
    sender: Callable[[Any, NotificationText], None] = _SENDERS[type(channel)]
    sender(channel, message)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class _Deadline:
    """Closes connections when it expires. A socket's own timeout restarts with each byte received."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self.has_expired = False

    def watch(self, connected: socket.socket) -> None:
        """Cut off this connection, too; also if it is wrapped by TLS afterwards."""
        with self._lock:
            self._sockets.append(socket.socket(fileno=os.dup(connected.fileno())))
        if self.has_expired:
            self.expire()

    def expire(self) -> None:
        with self._lock:
            self.has_expired = True
            for each in self._sockets:
                with suppress(OSError):  # it has ended
                    # To shut it for writing too would reset it if more arrives, and lose an answer that was read.
                    each.shutdown(socket.SHUT_RD)

    def close(self) -> None:
        with self._lock:
            for each in self._sockets:
                each.close()
            self._sockets.clear()


@contextmanager
def _within(seconds: float, whom: str) -> Iterator[_Deadline]:
    """Yield a deadline for the connections of the block. Raises TimeoutError if it has expired when the block fails."""
    deadline = _Deadline()
    timer = threading.Timer(seconds, deadline.expire)
    timer.daemon = True
    timer.start()
    try:
        yield deadline
    except Exception:
        if deadline.has_expired:
            raise TimeoutError(f"{whom} has not answered within {seconds:.0f} s") from None
        raise
    finally:
        timer.cancel()
        deadline.close()


def _opener(deadline: _Deadline) -> urllib.request.OpenerDirector:
    """Return what opens URLs without following redirects, and lets a deadline watch the connections."""

    class Watched(HTTPConnection):
        def connect(self) -> None:
            super().connect()
            deadline.watch(self.sock)

    class WatchedSecure(HTTPSConnection, Watched):
        pass

    class Handler(urllib.request.HTTPHandler):
        def http_open(self, req: urllib.request.Request) -> Any:
            return self.do_open(Watched, req)

    class SecureHandler(urllib.request.HTTPSHandler):
        def https_open(self, req: urllib.request.Request) -> Any:
            return self.do_open(WatchedSecure, req, context=ssl.create_default_context())

    return urllib.request.build_opener(_NoRedirects, Handler, SecureHandler)


def _post(webhook: Webhook, message: NotificationText) -> None:
    headers = {"Content-Type": "application/json", "User-Agent": "sparklog", **webhook.headers}
    data = json.dumps(message.document).encode()
    request = urllib.request.Request(webhook.url, data, headers, method="POST")
    with _within(webhook.timeout_seconds, "the webhook") as deadline:
        try:
            with _opener(deadline).open(request, timeout=webhook.timeout_seconds):
                return
        except urllib.error.HTTPError as error:
            with error:
                answer = error.read(SHOWN_BYTES).decode("utf-8", "replace")
            raise HTTPException(f"the webhook answered {error.code} {error.reason}: {answer}".rstrip(": ")) from None


def _run(command: Command, message: NotificationText) -> None:
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command.arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,  # so that what it starts ends with it
        )
        try:
            process.communicate(json.dumps(message.document).encode() + b"\n", timeout=command.timeout_seconds)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"the command took more than {command.timeout_seconds:.0f} s, and was ended") from None
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if process.returncode:
            errors.seek(0)
            shown = errors.read(SHOWN_BYTES).decode("utf-8", "replace").strip()
            raise OSError(f"the command ended with {process.returncode}: {shown}".rstrip(": "))


def _mail(mail: Mail, message: NotificationText) -> None:
    letter = EmailMessage()
    letter["Subject"], letter["From"], letter["To"] = message.title, mail.sender, ", ".join(mail.to)
    letter["Date"], letter["Message-ID"] = formatdate(), make_msgid(domain="sparklog.invalid")
    letter["Auto-Submitted"] = "auto-generated"
    letter.set_content(message.text)
    with _within(mail.timeout_seconds, "the mail server") as deadline, _connect(mail, deadline) as server:
        if mail.security == "starttls":
            server.starttls(context=ssl.create_default_context())
        if mail.user:
            server.login(mail.user, mail.password)
        server.send_message(letter)


def _connect(mail: Mail, deadline: _Deadline) -> smtplib.SMTP:
    class Watched(smtplib.SMTP):
        def _get_socket(self, host: Any, port: Any, timeout: Any) -> Any:
            connected = super()._get_socket(host, port, timeout)  # type: ignore[misc]
            deadline.watch(connected)
            return connected

    class WatchedSecure(smtplib.SMTP_SSL, Watched):
        pass

    if mail.security == "tls":
        context = ssl.create_default_context()
        return WatchedSecure(mail.host, mail.port, timeout=mail.timeout_seconds, context=context)
    return Watched(mail.host, mail.port, timeout=mail.timeout_seconds)


_SENDERS: dict[type, Callable[[Any, NotificationText], None]] = {Webhook: _post, Command: _run, Mail: _mail}
