"""Amazon S3 and servers that speak its API, through s3fs.

Rules:

* ``put_if_absent`` is a single PUT with ``If-None-Match: *``, never an upload in parts: some servers ignore the
  condition there. Servers word a taken name differently (AWS: the failed condition by its name; RGW and MinIO: only
  412), and 409 ConditionalRequestConflict means that another conditional write was under way and this one did nothing.
* Every call names bucket and key themselves instead of a path, which s3fs would search for versions and folders.
* A streaming write is an upload in parts, visible when completed. Parts go up while the next one is being filled.

Not for: other object storages (``remote.py``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from sparklog.clock import Clock, SystemClock
from sparklog.errors import (
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    UnsupportedStoreError,
)
from sparklog.store.base import BytesLike, ObjectInfo, check_create, is_hidden, validate_key
from sparklog.store.remote import FsspecStore, as_bytes, error_code

PART_BYTES = 16 * 1024 * 1024
"""bytes of one part of an upload. S3 wants at least 5 MiB and at most 10,000 parts: 160 GB."""

MAX_PARTS = 10_000

PARTS_IN_FLIGHT = 3
"""parts on their way while the next one is filled; each is held in memory."""

CONFLICT_PAUSES_SECONDS = (0.02, 0.05, 0.1, 0.2, 0.5)
"""Pauses before another try after 409 ConditionalRequestConflict."""


class S3Store(FsspecStore):
    """A folder of a bucket. Thread-safe, picklable (with its options), usable after a fork."""

    def __init__(self, url: str, options: Mapping[str, object], clock: Clock | None = None) -> None:
        super().__init__(url, options)
        self._bucket, _, folder = self._url.removeprefix("s3://").partition("/")
        if "@" in self._bucket:
            self.root = "s3://" + self._bucket.rpartition("@")[2]
            raise UnsupportedStoreError(
                f"the address of {self.root} carries credentials, which would end up in logs: pass them in the "
                "environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY) or as storage options (key, secret)",
                path=self.root,
            )
        self._prefix = f"{folder}/" if folder else ""
        self._clock = clock or SystemClock()

    def __reduce__(self) -> tuple[Any, ...]:
        return (S3Store, (self._url, self._options, self._clock))

    def put(self, key: str, data: BytesLike) -> None:
        self._call("write", key, "put_object", Body=as_bytes(data))

    def put_if_absent(self, key: str, data: BytesLike) -> None:
        body = as_bytes(data)
        check_create(key, len(body))
        for pause in (*CONFLICT_PAUSES_SECONDS, None):
            try:
                self._client.get().call_s3(
                    "put_object", Bucket=self._bucket, Key=self._prefix + key, Body=body, IfNoneMatch="*"
                )
                return
            except Exception as error:
                code = error_code(error)
                if isinstance(error, FileExistsError) or code in ("PreconditionFailed", "412"):
                    raise ObjectExistsError(f"{self._shown(key)} exists", path=self._shown(key)) from error
                if code not in ("ConditionalRequestConflict", "409") or pause is None:
                    raise self._translate(error, "write", key) from error
            self._clock.sleep(pause)

    def delete(self, key: str) -> None:
        with suppress(ObjectNotFoundError):
            self._call("delete", key, "delete_object")

    def info(self, key: str) -> ObjectInfo:
        answer = self._call("read", key, "head_object")
        return ObjectInfo(key, answer["ContentLength"], int(answer["LastModified"].timestamp() * 1000))

    def open_output(self, key: str) -> S3OutputFile:
        return S3OutputFile(self, validate_key(key))

    def remove_unfinished(self, before_ms: int) -> int:
        removed = 0
        for upload in list(self._uploads()):
            if upload["Initiated"].timestamp() * 1000 < before_ms:
                key = upload["Key"].removeprefix(self._prefix)
                with suppress(ObjectNotFoundError):
                    self._call("delete", key, "abort_multipart_upload", UploadId=upload["UploadId"])
                    removed += 1
        return removed

    def _path(self, key: str) -> str:
        return f"{self._bucket}/{self._prefix}{validate_key(key)}"

    def _call(self, operation: str, key: str, method: str, **arguments: Any) -> Any:
        """One request about one object, its errors translated."""
        validate_key(key)
        try:
            return self._client.get().call_s3(method, Bucket=self._bucket, Key=self._prefix + key, **arguments)
        except Exception as error:
            raise self._translate(error, operation, key) from error

    def _list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Page by page, as S3 lists: in the order of the keys, a thousand each."""
        arguments: dict[str, Any] = {"Bucket": self._bucket, "Prefix": self._prefix + prefix}
        while True:
            try:
                page = self._client.get().call_s3("list_objects_v2", **arguments)
            except Exception as error:
                raise self._translate(error, "list", prefix) from error
            for entry in page.get("Contents", ()):
                key = entry["Key"][len(self._prefix) :]
                if key and not key.endswith("/") and not is_hidden(key.rpartition("/")[2]):
                    yield ObjectInfo(key, entry["Size"], int(entry["LastModified"].timestamp() * 1000))
            if not page.get("IsTruncated"):
                return
            arguments["ContinuationToken"] = page["NextContinuationToken"]

    def _uploads(self) -> Iterator[Mapping[str, Any]]:
        arguments: dict[str, Any] = {"Bucket": self._bucket, "Prefix": self._prefix}
        while True:
            try:
                page = self._client.get().call_s3("list_multipart_uploads", **arguments)
            except Exception as error:
                raise self._translate(error, "list", "") from error
            yield from page.get("Uploads", ())
            if not page.get("IsTruncated"):
                return
            arguments["KeyMarker"] = page["NextKeyMarker"]
            arguments["UploadIdMarker"] = page["NextUploadIdMarker"]


class S3OutputFile:
    """An upload in parts, or a single PUT if there is less than one part. Not thread-safe."""

    def __init__(self, store: S3Store, key: str) -> None:
        self.key = key
        self._store = store
        self._part = bytearray()
        self._position = 0
        self._upload_id: str | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._in_flight: deque[Future[dict[str, Any]]] = deque()
        self._done: list[dict[str, Any]] = []
        self._open = True

    def write(self, data: BytesLike) -> int:
        if not self._open:
            raise StorageError(f"{self.key} was closed or aborted before this write", path=self.key)
        view = memoryview(data).cast("B")
        start = 0
        try:
            while start < view.nbytes:
                taken = view[start : start + PART_BYTES - len(self._part)]
                self._part += taken
                start += taken.nbytes
                if len(self._part) == PART_BYTES:
                    self._send_part()
        except BaseException:
            self.abort()
            raise
        self._position += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        return self._position

    def close(self) -> None:
        if not self._open:
            return
        try:
            if self._upload_id is None:
                self._store.put(self.key, bytes(self._part))
            else:
                self._complete()
        except BaseException:
            self.abort()
            raise
        self._finish()

    def abort(self) -> None:
        if not self._open:
            return
        for part in self._in_flight:
            part.cancel()
        for part in self._in_flight:  # a part that arrives after the abort would stay on the server
            with suppress(BaseException):
                part.result()
        if self._upload_id is not None:
            with suppress(Exception):
                self._store._call("delete", self.key, "abort_multipart_upload", UploadId=self._upload_id)
        self._finish()

    def __enter__(self) -> S3OutputFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, traceback: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def _send_part(self) -> None:
        if self._upload_id is None:
            self._upload_id = self._store._call("write", self.key, "create_multipart_upload")["UploadId"]
            self._threads = ThreadPoolExecutor(PARTS_IN_FLIGHT, thread_name_prefix="sparklog-upload")
        assert self._threads is not None
        while len(self._in_flight) >= PARTS_IN_FLIGHT:
            self._done.append(self._in_flight.popleft().result())
        number = len(self._done) + len(self._in_flight) + 1
        if number > MAX_PARTS:
            raise StorageError(
                f"{self.key} is longer than {MAX_PARTS} parts of {PART_BYTES} bytes, S3's limit: roll segments earlier "
                "(segment.bytes)",
                path=self.key,
            )
        self._in_flight.append(self._threads.submit(self._upload, number, bytes(self._part)))
        self._part = bytearray()

    def _upload(self, number: int, data: bytes) -> dict[str, Any]:
        answer = self._store._call(
            "write", self.key, "upload_part", UploadId=self._upload_id, PartNumber=number, Body=data
        )
        return {"PartNumber": number, "ETag": answer["ETag"]}

    def _complete(self) -> None:
        if self._part:
            self._send_part()
        while self._in_flight:
            self._done.append(self._in_flight.popleft().result())
        self._store._call(
            "write",
            self.key,
            "complete_multipart_upload",
            UploadId=self._upload_id,
            MultipartUpload={"Parts": self._done},
        )

    def _finish(self) -> None:
        self._open = False
        self._part = bytearray()
        if self._threads is not None:
            self._threads.shutdown(wait=False)
