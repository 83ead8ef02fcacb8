"""Ten thousand hostile requests to `sparklog ui`, as a process: none changes anything, and it answers afterwards."""

from __future__ import annotations

import random
import re
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import sparklog
from sparklog.coordinator import create_cluster
from sparklog.store.open import open_store
from sparklog.ui.changes import CHANGES
from tests.web import Web

pytestmark = pytest.mark.ui

REQUESTS = 10_000
THREADS = 8
HALF_OPEN = 150
MAX_GROWTH = 64 * 1024 * 1024
"""Bytes by which the process may grow: pages are made of caches with bounds, and of up to 40 threads."""
TOKEN = "correct-horse-battery-staple"
PATHS = ("/", "/log", "/log/topics", "/log/topics/orders", "/log/topics/orders/records", "/log/commits",
         "/log/commits/1", "/log/group?name=g", "/log/maintenance", "/log/alerts", "/login",
         "/static/page.js")  # fmt: skip
TRICKS = ("/static/..%2f..%2fapp.py", "/log/%2e%2e/%2e%2e/etc/passwd", "//evil.example", "/log/topics/%00", "/\\..\\..",
          "/log/topics/" + "%ff" * 200, "/%c0%ae%c0%ae/", "/log/topics/orders/records/-1/0", "http://evil.example/log",
          "*", "/log/commits/99999999999999999999", "/log/topics?page=%F0%9F",
          "/log?" + "&".join(["a=1"] * 500))  # fmt: skip
METHODS = ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "BREW", "get", "G\x00T", "")


def request(rng: random.Random, port: int) -> bytes:
    """Return the bytes of one hostile request."""
    path, method, host = rng.choice(PATHS), "GET", f"127.0.0.1:{port}"
    headers: list[bytes] = []
    body = b""
    match rng.randrange(12):
        case 0:
            path = rng.choice(TRICKS)
        case 1:
            host = rng.choice(("evil.example", "", "127.0.0.1.evil.example", "127.0.0.1@evil.example", "\x00", "[::"))
        case 2:
            method = rng.choice(METHODS)
        case 3:  # a change without the form's token, from another site
            method, path = "POST", f"/log/change/{rng.choice(list(CHANGES))}"
            headers = [b"Origin: https://evil.example", b"Content-Type: application/x-www-form-urlencoded"]
            body = b"topic=orders&name=orders&confirmed=1&csrf=" + rng.randbytes(8).hex().encode()
        case 4:  # a change that looks as if it were of this site
            method, path = "POST", f"/log/change/{rng.choice(list(CHANGES))}"
            headers = [b"Cookie: sparklog_session=1.2.3", b"Content-Type: application/x-www-form-urlencoded"]
            body = b"topic=orders&name=orders&partition=0&before=1&steps=roll&csrf=0&confirmed=0"
        case 5:
            headers = [b"X-%d: " % number + b"a" * 1000 for number in range(rng.choice((10, 200)))]
        case 6:
            headers = [b"Cookie: " + rng.randbytes(200).replace(b"\n", b"").replace(b"\r", b"")]
        case 7:
            method, path, body = "POST", "/login", b"token=" + b"x" * rng.choice((10, 3_000_000))
            headers = [b"Content-Type: application/x-www-form-urlencoded"]
        case 8:  # two lengths, and a chunk that is none
            headers = [b"Content-length: -1", b"Transfer-Encoding: chunked", b"Authorization: Bearer wrong"]
            method, body = "POST", b"zz\r\nhello\r\n"
        case 9:
            return rng.randbytes(rng.choice((1, 50, 5000)))
        case 10:
            headers = [b"Upgrade: websocket", b"Connection: Upgrade", b"Sec-WebSocket-Key: x"]
        case _:
            path += (
                f"{'&' if '?' in path else '?'}sort={'-' * rng.randrange(400)}&page={rng.randrange(-9, 10**9)}&q=%ff"
            )
    length = [] if any(each.startswith(b"Content-length") for each in headers) else [b"Content-Length: %d" % len(body)]
    head = [f"{method} {path} HTTP/1.1".encode("latin-1", "replace"), f"Host: {host}".encode("latin-1")]
    return b"\r\n".join([*head, b"Connection: close", *length * bool(body), *headers, b"", body])


def send(port: int, data: bytes) -> str:
    """Send a request, read all of the answer, and return its status, empty if the server hung up."""
    answer = b""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        with suppress(OSError):
            client.sendall(data)
            if not data.endswith(b"\r\n\r\n") and b"Content-Length: " not in data:
                client.shutdown(socket.SHUT_WR)  # it is no whole request, and nothing would answer it
        while part := client.recv(1 << 16):
            answer = (answer + part)[:100]
    return answer[9:12].decode("latin-1")


def memory(pid: int) -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


@contextmanager
def command(root: str, *options: str) -> Iterator[tuple[int, int]]:
    """Run `sparklog ui`; return its port and process id."""
    arguments = [sys.executable, "-m", "sparklog.cli", "ui", root, "--listen", "127.0.0.1:0", *options]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            found = re.search(r"http://127\.0\.0\.1:(\d+)/", server.stdout.readline())
            assert found is not None
            yield int(found[1]), server.pid
        finally:
            server.terminate()


def attack(port: int, requests: int) -> Counter[str]:
    """Send hostile requests from several threads; return how often each status was the answer."""

    def run(seed: int) -> list[str]:
        rng = random.Random(seed)
        return [send(port, request(rng, port)) for _ in range(requests // THREADS)]

    with ThreadPoolExecutor(THREADS) as threads:
        return Counter(status for statuses in threads.map(run, range(THREADS)) for status in statuses)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
@pytest.mark.parametrize("with_token", [False, True], ids=["changes allowed", "token"])
def test_hostile_requests_change_nothing_and_leave_the_server_whole(tmp_path: Path, with_token: bool) -> None:
    root = str(tmp_path / "log")
    cluster = create_cluster(root)
    cluster.create_topic("orders", 2)
    with sparklog.Producer(cluster=cluster) as producer:
        producer.send("orders", b"value", partition=0).get()
    token = tmp_path / "token"
    token.touch(0o600)
    token.write_text(TOKEN)
    version, objects = cluster.refresh().version, {info.key for info in open_store(root).list()}
    with command(root, "--allow-changes", *(["--token-file", str(token)] if with_token else [])) as (port, pid):
        web = Web(port)
        signed_in = web.post("/login", f"token={TOKEN}".encode()) if with_token else web.get("/")
        good = {"Cookie": signed_in.cookies[0].partition(";")[0]}
        for path in PATHS:
            web.get(path, good)
        before = memory(pid)
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(HALF_OPEN)]
        for number, each in enumerate(idle):
            each.sendall(
                (b"", b"GET / HTTP/1.1\r\nHost: ", b"POST /login HTTP/1.1\r\nContent-Length: 9\r\n")[number % 3]
            )
        answers = attack(port, REQUESTS // 2)
        for each in idle:
            each.close()
        assert memory(pid) - before < MAX_GROWTH
        assert "orders" in web.get("/log/topics", good).text
    assert answers.total() == REQUESTS // 2
    assert not answers["500"]
    assert answers["200"] > 0
    assert answers["503"] < REQUESTS // 100, answers
    assert answers["421"] > 0
    assert answers["403"] > 0 or with_token
    assert {info.key for info in open_store(root).list()} == objects
    assert cluster.refresh().version == version
