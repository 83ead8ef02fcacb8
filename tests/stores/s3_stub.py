"""An in-memory S3 server with one bucket and scripted answers to chosen requests, for failures that no real server
produces on demand. The real client talks to it over a socket.

A ``Step`` says whether one request takes effect (``NO``, ``YES``, or ``LATER``: after the client has given up) and
which answer replaces the honest one. A script belongs to an operation and a key; requests without a step are served
honestly, by the rules of S3.

Not for: how S3 stores anything. Signatures are not checked, and there are no versions.
"""

from __future__ import annotations

import asyncio
import hashlib
import socket
import struct
import threading
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

NO, YES, LATER = "no", "yes", "later"
"""Whether a request takes effect."""

DROP, RESET, LATE, HONEST = "drop", "reset", "late", "honest"
"""The connection is closed or reset before an answer; the answer comes after the client's timeout; the true answer."""

DATE = "Sun, 22 Nov 2026 08:00:00 GMT"
_DECLARATION = b'<?xml version="1.0" encoding="UTF-8"?>\n'
_LISTED_DATE = "2026-11-22T08:00:00.000Z"


class Answer(NamedTuple):
    """The answer to send. ``form`` is DROP, RESET, LATE or HONEST, or the kind of body: ``xml`` (an error of the
    service), ``empty``, ``html`` (a proxy's page), ``broken`` (truncated XML), ``cut`` (fewer bytes than the header
    states)."""

    form: str
    status: int = 0
    code: str = ""


class Step(NamedTuple):
    effect: str
    answer: Answer


class _Request(NamedTuple):
    method: str
    bucket: str
    key: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def operation(self) -> str:
        if not self.key:
            return "uploads" if "uploads" in self.query else "list"
        if self.method == "POST":
            return "begin" if "uploads" in self.query else "complete"
        if "uploadId" in self.query:
            return "part" if self.method == "PUT" else "abort"
        return self.method.lower()

    @property
    def script_key(self) -> str:
        return self.key or self.query.get("prefix", "")


class _Response(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class StubS3:
    """Listens on a port of its own, in a thread of its own. ``objects`` are the stored objects by key.

    With ``hide_missing`` it says of a missing object that access is denied, as S3 does to those who may not list it;
    with ``deny_lists`` they may not.
    """

    def __init__(self, ignore_conditions: bool = False) -> None:
        self.ignore_conditions = ignore_conditions
        self.hide_missing = False
        self.deny_lists = False
        self.objects: dict[str, bytes] = {}
        self.requests: dict[tuple[str, str], int] = defaultdict(int)
        self._scripts: dict[tuple[str, str], deque[Step]] = {}
        self._later: list[_Request] = []
        self._number = 0
        self._open_uploads: dict[str, tuple[str, dict[int, bytes]]] = {}
        self._loop = asyncio.new_event_loop()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def script(self, operation: str, key: str, steps: Iterable[Step]) -> None:
        """Script the next requests of this operation (``put``, ``get``, ``head``, ``delete``, ``begin``, ``part``,
        ``complete``, ``abort``, or ``list`` of a prefix) on this key."""
        self._scripts[operation, key] = deque(steps)

    def steps_left(self, operation: str, key: str) -> int:
        return len(self._scripts.get((operation, key), ()))

    def settle(self) -> None:
        """Apply all effects that are still to come."""
        later, self._later = self._later, []
        for request in later:
            self._serve(request)

    def options(self, **config: Any) -> dict[str, Any]:
        """Storage options for a client of this server that retries once, with short timeouts."""
        return {
            "endpoint_url": self.endpoint,
            "key": "key",
            "secret": "secret",
            "client_kwargs": {"region_name": "us-east-1"},
            "config_kwargs": {
                "retries": {"max_attempts": 2, "mode": "standard"},
                "read_timeout": 0.5,
                "max_pool_connections": 500,
                **config,
            },
        }

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._listener.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._connection, sock=self._listener))
        self._loop.run_forever()
        server.close()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while (request := await _read(reader, writer)) is not None:
                if not await self._answer(request, reader, writer):
                    break
        with suppress(OSError):
            writer.close()

    async def _answer(self, request: _Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Return whether the connection stays open."""
        self.requests[request.operation, request.script_key] += 1
        script = self._scripts.get((request.operation, request.script_key))
        step = script.popleft() if script else Step(YES, Answer(HONEST))
        honest = self._serve(request) if step.effect == YES else None
        if step.effect == LATER:
            self._later.append(request)
        form, status, code = step.answer
        if form == RESET:
            plug = writer.get_extra_info("socket")
            plug.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if form == LATE:
            await reader.read()  # until the client hangs up
        if form in (DROP, RESET, LATE):
            return False
        response = honest if form == HONEST else _response(form, status, code, request)
        assert response is not None, "an honest answer needs an effect"
        writer.write(_encode(response, request.method, cut=form == "cut"))
        await writer.drain()
        return form != "cut"

    def _serve(self, request: _Request) -> _Response:
        """Take effect, and return the true answer."""
        return getattr(self, f"_{request.operation}")(request)

    def _put(self, request: _Request) -> _Response:
        taken = request.key in self.objects and not self.ignore_conditions
        if taken and request.headers.get("if-none-match") == "*":
            return _error(412, "PreconditionFailed", "<Condition>If-None-Match</Condition>")
        self.objects[request.key] = request.body
        return _Response(200, {"ETag": _etag(request.body)}, b"")

    def _get(self, request: _Request) -> _Response:
        if request.key not in self.objects:
            return _error(403, "AccessDenied") if self.hide_missing else _error(404, "NoSuchKey")
        whole = self.objects[request.key]
        headers = {"ETag": _etag(whole), "Last-Modified": DATE}
        if "range" not in request.headers:
            return _Response(200, headers, whole)
        first, _, last = request.headers["range"].removeprefix("bytes=").partition("-")
        start, end = int(first), min(int(last) + 1 if last else len(whole), len(whole))
        if start >= len(whole):
            return _error(416, "InvalidRange")
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(whole)}"
        return _Response(206, headers, whole[start:end])

    def _head(self, request: _Request) -> _Response:
        if request.key not in self.objects:
            return _Response(403 if self.hide_missing else 404, {}, b"")
        whole = self.objects[request.key]
        return _Response(200, {"ETag": _etag(whole), "Last-Modified": DATE}, whole)

    def _delete(self, request: _Request) -> _Response:
        self.objects.pop(request.key, None)
        return _Response(204, {}, b"")

    def _list(self, request: _Request) -> _Response:
        if self.deny_lists:
            return _error(403, "AccessDenied")
        prefix = request.query.get("prefix", "")
        keys = sorted(key for key in self.objects if key.startswith(prefix))
        entries = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(self.objects[key])}</Size>"
            f"<LastModified>{_LISTED_DATE}</LastModified></Contents>"
            for key in keys
        )
        return _xml("ListBucketResult", f"<IsTruncated>false</IsTruncated><KeyCount>{len(keys)}</KeyCount>{entries}")

    def _begin(self, request: _Request) -> _Response:
        upload = f"upload-{self._number}"
        self._number += 1
        self._open_uploads[upload] = (request.key, {})
        return _xml("InitiateMultipartUploadResult", f"<UploadId>{upload}</UploadId>")

    def _part(self, request: _Request) -> _Response:
        if request.query["uploadId"] not in self._open_uploads:
            return _error(404, "NoSuchUpload")
        self._open_uploads[request.query["uploadId"]][1][int(request.query["partNumber"])] = request.body
        return _Response(200, {"ETag": _etag(request.body)}, b"")

    def _complete(self, request: _Request) -> _Response:
        parts = self._open_uploads.pop(request.query["uploadId"], None)
        if parts is None:
            return _error(404, "NoSuchUpload")
        self.objects[parts[0]] = b"".join(part for _, part in sorted(parts[1].items()))
        return _xml("CompleteMultipartUploadResult", "<ETag>&quot;whole&quot;</ETag>")

    def _abort(self, request: _Request) -> _Response:
        if self._open_uploads.pop(request.query["uploadId"], None) is None:
            return _error(404, "NoSuchUpload")
        return _Response(204, {}, b"")


@contextmanager
def stub_s3(ignore_conditions: bool = False) -> Iterator[StubS3]:
    server = StubS3(ignore_conditions)
    try:
        yield server
    finally:
        server.close()


async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> _Request | None:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await writer.drain()
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    if "aws-chunked" in headers.get("content-encoding", ""):
        body = _unchunked(body)
    parts = urlsplit(target)
    bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
    query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
    return _Request(method, bucket, key, query, headers, body)


def _unchunked(body: bytes) -> bytes:
    whole = b""
    while body:
        line, _, body = body.partition(b"\r\n")
        size = int(line.partition(b";")[0], 16)
        if size == 0:
            break
        whole, body = whole + body[:size], body[size + 2 :]
    return whole


def _etag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


def _xml(name: str, inside: str) -> _Response:
    body = f'<{name} xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{inside}</{name}>'
    return _Response(200, {"Content-Type": "application/xml"}, _DECLARATION + body.encode())


def _error(status: int, code: str, more: str = "") -> _Response:
    body = f"<Error><Code>{code}</Code><Message>{code}, it says</Message>{more}</Error>"
    return _Response(status, {"Content-Type": "application/xml"}, _DECLARATION + body.encode())


def _response(form: str, status: int, code: str, request: _Request) -> _Response:
    if form == "html":
        page = f"<html><head><title>{status}</title></head><body><h1>{status} says the proxy</h1></body></html>"
        return _Response(status, {"Content-Type": "text/html; charset=utf-8"}, page.encode())
    if form == "empty":
        return _Response(status, {}, b"")
    whole = _error(status, code or "InternalError")
    return whole._replace(body=whole.body[: len(whole.body) // 2]) if form == "broken" else whole


def _encode(response: _Response, method: str, cut: bool) -> bytes:
    headers = {"Date": DATE, **response.headers}
    if "html" not in headers.get("Content-Type", ""):
        headers["x-amz-request-id"] = "stub"
    if response.status != 204:
        headers["Content-Length"] = str(len(response.body))
    lines = [f"HTTP/1.1 {response.status} Stub", *(f"{name}: {value}" for name, value in headers.items())]
    body = b"" if method == "HEAD" else response.body
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (body[: len(body) // 2] if cut else body)
