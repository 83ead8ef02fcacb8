"""Notifications arrive at a webhook, a command and a mail server; what does not answer holds up no other."""

from __future__ import annotations

import json
import os
import socketserver
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from sparklog.clock import SystemClock
from sparklog.monitoring.alerts import channels
from sparklog.monitoring.alerts.channels import send_all
from sparklog.monitoring.alerts.channels_of_file import Channel, Command, Mail, Webhook
from sparklog.monitoring.alerts.notifications import NotificationText, alert_of, message_of
from sparklog.monitoring.alerts.rules import Rule
from sparklog.monitoring.alerts.transitions import AlertChange

RULE = Rule("behind", "lag", above=10, clear=5, description="look\nthere")
HOSTILE = "evil\x1b[2J\r\nBcc: a@b"
FIRING = AlertChange("behind", (("group", HOSTILE), ("topic", "orders")), "firing", 2000, 1000, 12.0)
MESSAGE = message_of("id", "/data/log", [{"id": "id:1", **alert_of(RULE, FIRING)}])


def send(**named: Channel) -> dict[str, str]:
    return dict(send_all({name: (channel, MESSAGE) for name, channel in named.items()}, SystemClock()))


class Server:
    """A web server that answers as it is told, and keeps what it got."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], Any]] = []
        self.status = 200
        self.release = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                if self.path == "/slow":
                    outer.release.wait(60)
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.requests.append((self.path, dict(self.headers), body))
                self.send_response(outer.status)
                self.send_header("Location", "/elsewhere")
                self.end_headers()
                self.wfile.write(b"no\x1b[2J such hook" if outer.status >= 400 else b"")

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def close(self) -> None:
        self.release.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def web() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


def test_a_webhook_gets_the_alerts_as_json_with_its_headers(web: Server) -> None:
    assert send(ops=Webhook(f"{web.url}/hook", {"Authorization": "Bearer t"})) == {"ops": ""}
    ((path, headers, body),) = web.requests
    assert (path, headers["Authorization"], headers["Content-Type"]) == ("/hook", "Bearer t", "application/json")
    assert (body["version"], body["cluster_id"], body["root"]) == (1, "id", "/data/log")
    (alert,) = body["alerts"]
    assert alert["subject"] == {"group": HOSTILE, "topic": "orders"}
    assert (alert["id"], alert["status"], alert["value"], alert["above"], alert["unit"]) == (
        "id:1", "firing", 12.0, 10, "count"
    )  # fmt: skip
    assert "FIRING behind [warning]" in body["text"]
    assert "\x1b" not in body["text"]


@pytest.mark.parametrize(
    ("status", "said"), [(404, r"answered 404 Not Found: no\x1b[2J such hook"), (500, "500"), (302, "302")]
)
def test_another_answer_than_success_is_a_problem_and_redirects_are_not_followed(
    web: Server, status: int, said: str
) -> None:
    web.status = status
    (problem,) = send(ops=Webhook(web.url, {})).values()
    assert said in problem
    assert problem.isprintable()
    assert len(web.requests) == 1


def test_a_channel_that_does_not_answer_holds_up_no_other(web: Server) -> None:
    both = {"slow": Webhook(f"{web.url}/slow", {}, 0.2), "ops": Webhook(f"{web.url}/hook", {}, 30.0)}
    outcomes = send_all({name: (channel, MESSAGE) for name, channel in both.items()}, SystemClock())
    first = next(outcomes)
    assert first == ("ops", "")
    (second,) = outcomes
    assert second.channel == "slow"
    assert any(said in second.problem for said in ("timed out", "no answer", "not answered"))


@contextmanager
def dripping_server(first: bytes) -> Iterator[int]:
    """Yield the port of a server that sends a line, and then a byte every now and then, for as long as it is read."""
    ended = threading.Event()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                self.request.sendall(first)
                while not ended.wait(0.02):
                    self.request.sendall(b"x")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server.server_address[1]
        ended.set()
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("first", [b"HTTP/1.1 ", b"HTTP/1.1 500 No\r\nContent-Length: 400\r\n\r\n"])
def test_a_webhook_that_answers_byte_by_byte_is_cut_off_at_its_timeout(first: bytes) -> None:
    with dripping_server(first) as port, pytest.raises(TimeoutError, match="the webhook has not answered within 1 s"):
        channels.send(Webhook(f"http://127.0.0.1:{port}", {}, 0.6), MESSAGE)


def test_a_webhook_that_has_accepted_and_goes_on_byte_by_byte_is_told_and_cut_off() -> None:
    with dripping_server(b"HTTP/1.1 200 OK\r\nX-Slow: ") as port:
        channels.send(Webhook(f"http://127.0.0.1:{port}", {}, 0.6), MESSAGE)


@pytest.mark.parametrize("url", ["https", "tls"])
def test_a_handshake_that_never_ends_is_cut_off_at_the_timeout(url: str) -> None:
    hello = bytes.fromhex("1603030fff")  # a TLS record of 4095 bytes
    with dripping_server(hello) as port:
        webhook = Webhook(f"https://127.0.0.1:{port}", {}, 0.6)
        mail = Mail(("ops@example.org",), "log@example.org", "127.0.0.1", port, "tls", timeout_seconds=0.6)
        with pytest.raises(TimeoutError):
            channels.send(webhook if url == "https" else mail, MESSAGE)


def test_a_mail_server_that_answers_byte_by_byte_is_cut_off_at_its_timeout() -> None:
    with dripping_server(b"220 ") as port:
        mail = Mail(("ops@example.org",), "log@example.org", "127.0.0.1", port, "none", timeout_seconds=0.6)
        with pytest.raises(TimeoutError, match="the mail server has not answered"):
            channels.send(mail, MESSAGE)


def test_an_address_where_nobody_listens_is_a_problem() -> None:
    (problem,) = send(ops=Webhook("http://127.0.0.1:1", {}, 5.0)).values()
    assert "refused" in problem


def python(code: str, *arguments: str, timeout: float = 30.0) -> Command:
    return Command((sys.executable, "-c", code, *arguments), timeout)


def test_a_command_gets_the_alerts_on_standard_input_and_no_shell_sees_its_arguments(tmp_path: Path) -> None:
    kept = tmp_path / "a; touch b $(c)"
    code = "import sys; open(sys.argv[1], 'w').write(sys.stdin.read())"
    assert send(ops=python(code, str(kept))) == {"ops": ""}
    assert json.loads(kept.read_text())["alerts"][0]["rule"] == "behind"
    assert os.listdir(tmp_path) == [kept.name]


def test_a_command_that_fails_or_does_not_exist_is_a_problem() -> None:
    problems = send(fails=python("import sys; sys.exit('bad\\x1b key')"), missing=Command(("/no/such/program",)))
    assert problems["fails"] == "OSError: the command ended with 1: bad\\x1b key"
    assert "No such file" in problems["missing"]


def test_a_command_that_hangs_is_ended_with_what_it_started(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    command = Command(("sh", "-c", 'sleep 300 & echo $! > "$0"; wait', str(pid)), 1.0)
    (problem,) = send(ops=command).values()
    assert "took more than 1 s, and was ended" in problem
    child = Path(f"/proc/{pid.read_text().strip()}/stat")
    assert not child.exists() or child.read_text().split()[2] in "ZX"


def test_a_command_may_leave_its_input_unread() -> None:
    assert send(ops=python("pass")) == {"ops": ""}


@contextmanager
def mail_server() -> Iterator[tuple[int, list[str]]]:
    """Yield the port of a mail server, and the lines that it gets."""
    lines: list[str] = []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"220 ready\r\n")
            data = False
            for raw in self.rfile:
                line = raw.decode().rstrip("\r\n")
                lines.append(line)
                if data:
                    data = line != "."
                    if data:
                        continue
                elif line.upper() == "DATA":
                    data = True
                    self.wfile.write(b"354 go on\r\n")
                    continue
                self.wfile.write(b"221 bye\r\n" if line.upper() == "QUIT" else b"250 ok\r\n")
                if line.upper() == "QUIT":
                    return

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server.server_address[1], lines
        server.shutdown()
        thread.join()


def test_an_email_has_the_alerts_as_text_and_names_of_strangers_add_no_header() -> None:
    with mail_server() as (port, lines):
        mail = Mail(("ops@example.org", "dev@example.org"), "log@example.org", "127.0.0.1", port, "none")
        assert send(mail=mail) == {"mail": ""}
    assert "rcpt TO:<ops@example.org>" in lines
    assert "rcpt TO:<dev@example.org>" in lines
    assert "Subject: sparklog: 1 firing: behind" in lines
    assert not [line for line in lines if line.startswith("Bcc")]
    assert any("FIRING behind [warning]" in line for line in lines)


def test_a_mail_server_without_tls_gets_no_mail_unless_that_is_allowed() -> None:
    with mail_server() as (port, lines):
        mail = Mail(("ops@example.org",), "log@example.org", "127.0.0.1", port, "starttls")
        (problem,) = send(mail=mail).values()
    assert "STARTTLS" in problem
    assert not [line for line in lines if line.upper().startswith(("RCPT", "DATA"))]


def test_a_message_counts_what_fires_and_resolves_and_shortens_long_lists() -> None:
    resolved = alert_of(None, FIRING._replace(status="resolved"))
    message = message_of("id", "/data/log", [alert_of(RULE, FIRING), resolved, *([resolved] * 40)])
    assert message.title == "sparklog: 1 firing, 41 resolved"
    assert "and 22 more" in message.text
    assert "its rule was removed" in message.text
    assert len(message.document["alerts"]) == 42
    assert isinstance(message, NotificationText)
