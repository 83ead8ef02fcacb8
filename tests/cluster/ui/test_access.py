"""Who gets a page: hosts, tokens, proxies, forms of other sites, and paths that lead elsewhere."""

from __future__ import annotations

import dataclasses
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sparklog.cli.main import main
from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster
from sparklog.errors import InvalidConfigurationError
from sparklog.ui.guard import FAILURE_MS, LOOPBACK, MAX_FAILURES, Access, host_name
from sparklog.ui.server import Settings, make_access, names_of
from tests.web import Web, serving

TOKEN = "correct-horse-battery"


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8484", "", "127.0.0.1.evil.example", "localhost.", "[::1", "a@127.0.0.1"]
)
def test_a_host_name_of_somebody_else_is_refused(web: Web, host: str) -> None:
    for path in ("/", "/log/topics", "/static/page.js", "/login"):
        answer = web.get(path, {"Host": host})
        assert answer.status == 421
        assert "log" not in answer.headers.get("location", "")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:1", "[::1]:8484", "LOCALHOST"])
def test_names_of_this_machine_are_accepted(web: Web, host: str) -> None:
    assert web.get("/", {"Host": host}).status == 200


def test_every_answer_forbids_what_pages_do_not_need(web: Web) -> None:
    for path in ("/", "/nothing", "/log/topics", "/static/style.css", "/log/topics/audit/records/0/4/value"):
        headers = web.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "server" not in headers
    assert web.get("/log/topics").headers["cache-control"] == "no-store"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_pages_are_only_read(web: Web, method: str) -> None:
    assert web.send(method, "/log/topics").status == 405


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/..%2f..%2fapp.py",
        "/static/%2e%2e/app.py",
        "/static//etc/passwd",
        "/static/..\\app.py",
        "//evil.example/log",
        "/log/../static/../../etc/passwd",
        "/log/topics/..%2f..%2fstatic%2fpage.js",
        "/log/topics/%00",
        "/log/topics/orders/records/-1/0",
        "/log/topics/orders/records/0/1e3",
        "/%2e%2e/",
    ],
)
def test_tricks_with_paths_lead_nowhere(web: Web, path: str) -> None:
    answer = web.get(path)
    assert answer.status in (404, 405)
    assert "create_app" not in answer.text
    assert "root:" not in answer.text


def access(**changes: object) -> Access:
    return dataclasses.replace(Access(hosts=frozenset(LOOPBACK)), **changes)  # type: ignore[arg-type]


def test_without_the_token_nothing_is_shown(shown: Coordinator) -> None:
    with serving(shown, access=access(token=TOKEN)) as web:
        for path in ("/", "/log/topics", "/log/topics/audit/records/download", "/nothing"):
            answer = web.get(path)
            assert answer.status == 401
            assert "orders" not in answer.text
        assert web.get("/", {"Accept": "text/html"}).headers["location"] == "/login"
        for header in ("Bearer wrong", "Bearer ", f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"bearer{TOKEN}"):
            assert web.get("/log", {"Authorization": header}).status == 401
        assert web.get("/log", {"Cookie": "sparklog_session=1.2.3"}).status == 401
        assert web.get("/log", {"Authorization": f"Bearer {TOKEN}"}).status == 200
        assert web.get("/static/style.css").status == 200


def test_a_browser_signs_in_once(shown: Coordinator) -> None:
    clock = ManualClock()
    with serving(shown, access=access(token=TOKEN), clock=clock) as web:
        assert web.post("/login", b"token=wrong").status == 403
        answer = web.post("/login", f"token={TOKEN}".encode())
        assert (answer.status, answer.headers["location"]) == (303, "/")
        (cookie,) = answer.cookies
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        session = {"Cookie": cookie.partition(";")[0]}
        assert web.get("/log", session).status == 200
        name, _, signature = session["Cookie"].rpartition(".")
        assert web.get("/log", {"Cookie": f"{name}.{signature[::-1]}"}).status == 401
        clock.advance(13 * 3600)
        assert web.get("/log", session).status == 401


def test_tokens_cannot_be_guessed_for_long(shown: Coordinator) -> None:
    clock = ManualClock()
    with serving(shown, access=access(token=TOKEN), clock=clock) as web:
        for _ in range(MAX_FAILURES):
            assert web.get("/log", {"Authorization": "Bearer wrong"}).status == 401
        assert web.get("/log", {"Authorization": f"Bearer {TOKEN}"}).status == 401
        clock.advance(FAILURE_MS / 1000 + 1)
        assert web.get("/log", {"Authorization": f"Bearer {TOKEN}"}).status == 200
        clock.advance(86_400)
        for _ in range(MAX_FAILURES):
            assert web.get("/log", {"Authorization": "Bearer wrong"}).status == 401
        clock.advance(-86_400)
        assert web.get("/log", {"Authorization": f"Bearer {TOKEN}"}).status == 200, "the clock was set back"


def test_a_form_of_another_site_is_refused(shown: Coordinator) -> None:
    form = f"token={TOKEN}".encode()
    with serving(shown, access=access(token=TOKEN)) as web:
        for headers in (
            {"Origin": "https://evil.example"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
            {"Origin": f"http://127.0.0.1.evil.example:{web.port}"},
        ):
            answer = web.post("/login", form, headers)
            assert (answer.status, answer.cookies) == (403, [])
        assert web.post("/login", form, {"Origin": web.url, "Sec-Fetch-Site": "same-origin"}).status == 303


def test_a_form_is_bounded(shown: Coordinator) -> None:
    with serving(shown, access=access(token=TOKEN)) as web:
        assert web.post("/login", b"token=" + b"x" * 3_000_000).status == 413
        assert web.post("/login", b"&".join(b"a=1" for _ in range(100))).status == 400
        assert web.post("/login", b"token=%ff").status == 400
        assert web.post("/login", b"{}", {"Content-Type": "application/json"}).status == 415


def test_behind_a_proxy_only_its_requests_with_a_user_are_answered(shown: Coordinator) -> None:
    by_proxy = access(proxy_header="X-Forwarded-User", proxies=frozenset({"127.0.0.1"}))
    with serving(shown, access=by_proxy) as web:
        assert web.get("/log").status == 401
        assert web.get("/log", {"X-Forwarded-User": ""}).status == 401
        assert web.get("/log", {"X-Forwarded-User": "ann"}).status == 200
    with serving(shown, access=dataclasses.replace(by_proxy, proxies=frozenset({"10.0.0.1"}))) as web:
        assert web.get("/log", {"X-Forwarded-User": "ann", "X-Forwarded-For": "10.0.0.1"}).status == 401


def test_one_server_answers_many_hostile_requests_and_then_a_good_one(web: Web) -> None:
    for number in range(300):
        web.get(f"/log/topics/{'%ff' * (number % 50)}?sort={'-' * number}", {"Cookie": "a=\x7f; " * (number % 40)})
    assert web.get("/log/topics").status == 200


def test_connections_whose_clients_do_nothing_are_closed(shown: Coordinator) -> None:
    with serving(shown, connection_patience=0.1) as web:
        for begun in (b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b"\x16\x03\x01\x02"):
            with socket.create_connection(("127.0.0.1", web.port), timeout=60) as client:
                client.sendall(begun)
                while True:
                    try:
                        if not client.recv(65536):
                            break
                    except ConnectionResetError:
                        break
        assert web.get("/log").status == 200


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "example.org"])
def test_an_address_that_others_reach_needs_a_token_or_a_proxy(host: str, token_file: Path) -> None:
    with pytest.raises(InvalidConfigurationError, match="lets in anybody who reaches it: give --token-file"):
        make_access(Settings(["/data/log"], host))
    assert make_access(Settings(["/data/log"], host, token_file=str(token_file))).token == TOKEN
    assert make_access(Settings(["/data/log"], host, proxy_header="X-User", proxies=["10.0.0.1"])).proxies
    assert make_access(Settings(["/data/log"], "127.0.0.1")).hosts == frozenset(LOOPBACK)
    assert "shown.example" in make_access(Settings([""], allowed_hosts=["Shown.example:443"])).hosts


def test_a_header_of_a_proxy_without_its_address_is_refused() -> None:
    with pytest.raises(InvalidConfigurationError, match="belong together"):
        make_access(Settings(["/data/log"], proxy_header="X-User"))


def test_the_address_of_a_proxy_is_an_ip_address_in_any_form() -> None:
    with pytest.raises(InvalidConfigurationError, match="invalid --proxy-from 'proxy': give an IP address"):
        make_access(Settings(["/data/log"], proxy_header="X-User", proxies=["proxy"]))
    assert make_access(Settings(["/data/log"], proxy_header="X-User", proxies=["0:0::1"])).proxies == {"::1"}


def test_a_token_that_others_can_read_or_guess_is_refused(token_file: Path) -> None:
    token_file.chmod(0o644)
    with pytest.raises(InvalidConfigurationError, match="can be read by others: chmod 600"):
        make_access(Settings([""], token_file=str(token_file)))
    token_file.write_text("short")
    token_file.chmod(0o600)
    with pytest.raises(InvalidConfigurationError, match="the token has 5 characters"):
        make_access(Settings([""], token_file=str(token_file)))
    os.remove(token_file)
    with pytest.raises(InvalidConfigurationError, match="cannot be read"):
        make_access(Settings([""], token_file=str(token_file)))


def test_clusters_are_named_by_the_end_of_their_root() -> None:
    roots = ["/data/log", "s3://bucket/log/", "/data/Größe & more", "/", "/x/static"]
    assert names_of(roots) == ["log", "log-2", "gr-e-more", "cluster", "static-2"]
    assert all(re.fullmatch(r"[a-z0-9-]+", name) for name in names_of(roots))


@pytest.mark.parametrize(
    ("header", "name"), [("[::1]:8484", "[::1]"), ("A.example:1", "a.example"), ("x", "x"), ("[", ""), (":80", "")]
)
def test_the_name_in_a_host_header(header: str, name: str) -> None:
    assert host_name(header) == name


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--listen", "8484"], "invalid --listen '8484'"),
        (["--listen", "::1:8484"], "invalid --listen"),
        (["--listen", "127.0.0.1:99999"], "invalid --listen"),
        (["localhost:9092"], "looks like the address of Kafka brokers"),
        (["/data/log", "--bootstrap-server", "/data/log"], "not both"),
        (["/nonexistent/cluster", "--listen", "127.0.0.1:0"], "no cluster"),
        (["/nonexistent/cluster", "--listen", "0.0.0.0:0"], "lets in anybody"),
    ],
)
def test_the_command_refuses_invalid_options(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ui", *arguments]) == 1
    assert message in capsys.readouterr().err


def test_the_command_refuses_a_root_that_is_given_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = create_cluster(str(tmp_path / "log")).store.root
    assert main(["ui", root, f"{root}/", "--listen", "127.0.0.1:0"]) == 1
    assert f"{root} is given twice" in capsys.readouterr().err


def test_the_command_serves_pages_until_it_is_interrupted(tmp_path: Path) -> None:
    root = str(tmp_path / "log")
    create_cluster(root).create_topic("orders")
    command = [sys.executable, "-m", "sparklog.cli", "ui", root, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = re.search(r"http://127\.0\.0\.1:(\d+)/", server.stdout.readline())
        assert address is not None
        web = Web(int(address[1]))
        assert "orders" in web.get("/log/topics").text
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=60) == 130


def test_sigterm_ends_the_command_as_an_interrupt_does() -> None:
    program = """
import signal
from sparklog.ui.server import ended_by_sigterm
with ended_by_sigterm():
    try:
        signal.raise_signal(signal.SIGTERM)
    finally:
        print("stopped", flush=True)
print("went on")
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.stdout, ended.returncode) == ("stopped\n", -signal.SIGTERM)
