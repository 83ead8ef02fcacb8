"""Amazon S3 and servers that speak its API, through s3fs.

Rules:

* ``put_if_absent`` is a single PUT with ``If-None-Match: *``, never a multipart upload: some servers ignore the
  condition there. The name is taken if the server returns PreconditionFailed, or 412 without a code but with a request
  id of S3. 409 ConditionalRequestConflict means that another conditional write was running and this one did nothing;
  but an earlier attempt of the client may have taken effect, so after a later error the outcome is unknown as ever.
* The client retries internally, so a response may be that to the second of two requests. Only calls that the client
  refuses to send are certain: those without credentials.
* A server that ignores the condition looks like one that does not, until two writers race. So it is probed
  (``conditional_write_probe``).
* A response counts only if it is S3's. A success has every field that S3 always sends; otherwise it came from a proxy
  or a captive portal. "Does not exist" is the code NoSuchKey. A HEAD has no body for it, so a 404 is followed by a GET.
* S3 says 403 of a missing object to those who may not list it, and some servers to those who may list the root only.
  So a refused read is followed by a listing of that key, which decides; if that is refused, it stays a missing right.
* Every call passes bucket and key instead of a path, which s3fs would parse for versions and folders.
* A streaming write is a multipart upload, visible when completed. Parts are sent while the next one is being filled.

Not for: other object storages (``remote.py``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any
from urllib.parse import urlsplit

from sparklog.clock import Clock, SystemClock
from sparklog.errors import (
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    StoragePermissionError,
    StorageUnavailableError,
    UnsupportedStoreError,
)
from sparklog.limits import MAX_CREATE_BYTES
from sparklog.retry import is_a, retry
from sparklog.store.base import BytesLike, ObjectInfo, StreamedFile, check_create, is_hidden, not_written, validate_key
from sparklog.store.process_local import unpickle_shared
from sparklog.store.remote import FsspecStore, as_bytes, cause_of, error_code
from sparklog.store.s3_errors import explain_s3_error, is_denied, lacks_to_read

PART_BYTES = 16 * 1024 * 1024
"""bytes of one part of an upload. S3 requires at least 5 MiB and at most 10,000 parts: 160 GB."""

MAX_PARTS = 10_000

PARTS_IN_FLIGHT = 3
"""parts in flight while the next one is filled; each is held in memory."""

CONFLICT_PAUSES_SECONDS = (0.02, 0.05, 0.1, 0.2, 0.5)
"""Pauses before each retry after 409 ConditionalRequestConflict."""

READ_ATTEMPTS = 3
"""tries of a read whose body is truncated, besides the client's own retries of requests."""

_ALWAYS_ANSWERED = {
    "put_object": ("ETag",),
    "get_object": ("ETag",),
    "head_object": ("ETag", "ContentLength", "LastModified"),
    "list_objects_v2": ("IsTruncated",),
    "create_multipart_upload": ("UploadId",),
    "upload_part": ("ETag",),
    "complete_multipart_upload": ("ETag",),
    "list_multipart_uploads": ("IsTruncated",),
}
"""Fields that S3 and every server with its API return for each request."""

_NOT_SENT = frozenset({"NoCredentialsError", "ParamValidationError"})
"""botocore's errors of a client that cannot send anything, and could not in an earlier attempt either."""


class S3Store(FsspecStore):
    """A folder of a bucket. Thread-safe, picklable (with its options), usable after a fork."""

    largest_create_bytes = MAX_CREATE_BYTES

    def __init__(self, url: str, options: Mapping[str, object], clock: Clock | None = None) -> None:
        super().__init__(url, options)
        self._bucket, _, folder = self._url.removeprefix("s3://").partition("/")
        if "@" in self._bucket:
            self.root = "s3://" + self._bucket.rpartition("@")[2]
            raise UnsupportedStoreError(
                f"the address of {self.root} contains credentials, which would end up in logs: pass them in the "
                "environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY) or as storage options (key, secret)",
                path=self.root,
            )
        self._prefix = f"{folder}/" if folder else ""
        self._clock = clock or SystemClock()
        self._endpoint = ""

    def __reduce__(self) -> tuple[Any, ...]:
        return unpickle_shared, (S3Store, (self._url, self._options, self._clock))

    @property
    def endpoint_to_probe(self) -> str:
        if not self._endpoint:
            with self._translating("write", ""):
                parts = urlsplit(self.client.get().s3.meta.endpoint_url)
            self._endpoint = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"
        return self._endpoint

    def put(self, key: str, data: BytesLike) -> None:
        self._call("write", key, "put_object", Body=as_bytes(data))

    def put_if_absent(self, key: str, data: BytesLike) -> None:
        body = as_bytes(data)
        check_create(key, len(body), self.largest_create_bytes)
        client, _ = self._client_for_create(key)
        for number, pause in enumerate((*CONFLICT_PAUSES_SECONDS, None)):
            try:
                self._send(client, "put_object", key, Body=body, IfNoneMatch="*")
                return
            except Exception as error:
                if _says_taken(error):
                    raise ObjectExistsError(f"{self._shown(key)} exists", path=self._shown(key)) from error
                if error_code(error) not in ("ConditionalRequestConflict", "409") or pause is None:
                    translated = self._translate(error, "write", key)
                    not_sent = number == 0 and type(error).__name__ in _NOT_SENT
                    raise (not_written(translated) if not_sent else translated) from cause_of(error)
            self._clock.sleep(pause)

    def delete(self, key: str) -> None:
        with suppress(ObjectNotFoundError):
            self._call("delete", key, "delete_object")

    def info(self, key: str) -> ObjectInfo:
        try:
            answer = self._send(self.client.get(), "head_object", validate_key(key))
        except Exception as failure:
            error = self._explain_read(failure, key)
            if not isinstance(error, ObjectNotFoundError) or is_denied(failure):
                raise error from cause_of(failure)
            self.get_range(key, 0, 1)
            raise StorageUnavailableError(
                f"read {self._shown(key)}: {self._bucket} reported it as missing, and then as present; retry",
                path=self._shown(key),
            ) from error
        return ObjectInfo(key, answer["ContentLength"], int(answer["LastModified"].timestamp() * 1000))

    def open_output(self, key: str) -> S3OutputFile:
        return S3OutputFile(self, validate_key(key))

    def remove_unfinished(self, before_ms: int) -> int:
        removed = 0
        pages = list(self._pages("list_multipart_uploads", "", "KeyMarker", "UploadIdMarker"))
        for upload in chain.from_iterable(page.get("Uploads", ()) for page in pages):
            if upload["Initiated"].timestamp() * 1000 < before_ms:
                key = upload["Key"].removeprefix(self._prefix)
                with suppress(ObjectNotFoundError):
                    self._call("delete", key, "abort_multipart_upload", UploadId=upload["UploadId"])
                    removed += 1
        return removed

    def _path(self, key: str) -> str:
        return f"{self._bucket}/{self._prefix}{validate_key(key)}"

    def _call(self, operation: str, key: str, method: str, **arguments: Any) -> Any:
        """Send one request for one object, and translate its errors."""
        validate_key(key)
        with self._translating(operation, key):
            return self._send(self.client.get(), method, key, **arguments)

    def _send(self, client: Any, method: str, key: str, **arguments: Any) -> Any:
        answer = client.call_s3(method, Bucket=self._bucket, Key=self._prefix + key, **arguments)
        return _check_response(method, answer, self._shown(key))

    def _read(self, key: str, path: str, start: int, end: int | None) -> bytes:
        bounds = {"Range": f"bytes={start}-{'' if end is None else end - 1}"} if start or end is not None else {}
        try:
            client = self.client.get()
            from fsspec.asyn import sync  # loaded with the client, which ``importing_client`` guards

            fetch = partial(sync, client.loop, self._fetch, client, key, bounds)
            return bytes(retry(fetch, self._clock, [0.0] * (READ_ATTEMPTS - 1), is_a(_BodyError)))
        except Exception as error:
            if error_code(error) == "InvalidRange":
                return b""
            raise self._explain_read(error, key) from cause_of(error)

    async def _fetch(self, client: Any, key: str, bounds: Mapping[str, str]) -> bytes:
        """Send one GET and return the whole body."""
        answer = await client._call_s3("get_object", Bucket=self._bucket, Key=self._prefix + key, **bounds)
        body = answer["Body"]
        try:
            _check_response("get_object", answer, self._shown(key))
            data = bytes(await body.read())
        except StorageError:
            raise
        except Exception as error:
            raise _BodyError(f"truncated body: {type(error).__name__}: {error}") from error
        finally:
            body.close()
        if len(data) != answer.get("ContentLength", len(data)):
            raise _BodyError(f"a body of {len(data)} bytes instead of {answer['ContentLength']}")
        return data

    def _translate(self, error: Exception, operation: str, key: str) -> Exception:
        code = error_code(error)
        if isinstance(error, FileNotFoundError) and operation in ("read", "delete") and not _is_about_the_key(error):
            shown = self._shown(key)
            if code == "NoSuchBucket":
                return StorageError(f"{operation} {shown}: {error} Create the bucket, or check the address", path=shown)
            return StorageUnavailableError(
                f"{operation} {shown}: 404 without S3's code for a missing object ({error}); is a proxy between here "
                "and the storage?",
                path=shown,
            )
        explained = None if isinstance(error, StorageError) else explain_s3_error(error)
        if explained is not None:
            shown = self._shown(key)
            return explained.kind(f"{operation} {shown}: {explained.said}; {explained.advice}", path=shown)
        return super()._translate(error, operation, key)

    def _explain_read(self, error: Exception, key: str) -> Exception:
        """Translate the error of a read. After a refusal it is looked up whether there is such an object."""
        translated = self._translate(error, "read", key)
        if not is_denied(error):
            return translated
        try:
            if self._is_listed(key):
                return translated
        except Exception as failure:
            if is_denied(failure):
                return StoragePermissionError(lacks_to_read(str(translated)), path=self._shown(key))
            return self._translate(failure, "read", key)  # such as a wrong secret, which the answer to a HEAD hides
        return ObjectNotFoundError(f"{self._shown(key)} does not exist", path=self._shown(key))

    def _is_listed(self, key: str) -> bool:
        """Return whether the object exists. Raises the client's errors."""
        whole = self._prefix + key
        page = self.client.get().call_s3("list_objects_v2", Bucket=self._bucket, Prefix=whole, MaxKeys=1)
        _check_response("list_objects_v2", page, self._shown(key))
        return any(entry["Key"] == whole for entry in page.get("Contents", ()))

    def _list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield the objects page by page as S3 lists them: ordered by key, a thousand each."""
        for page in self._pages("list_objects_v2", prefix, "ContinuationToken"):
            with self._translating("list", prefix):
                infos = [_to_info(entry, self._prefix) for entry in page.get("Contents", ())]
            for info in infos:
                if info.key and not info.key.endswith("/") and not is_hidden(info.key.rpartition("/")[2]):
                    yield info

    def keys_after(self, folder: str, key: str) -> Sequence[str] | None:
        arguments = {"Prefix": self._prefix + folder, "StartAfter": self._prefix + key}
        with self._translating("list", folder):
            page = self.client.get().call_s3("list_objects_v2", Bucket=self._bucket, **arguments)
            _check_response("list_objects_v2", page, self.root)
            found = [_to_info(entry, self._prefix).key for entry in page.get("Contents", ())]
        # a server that ignores StartAfter begins at the folder's first key
        return [each for each in found if each > key and not is_hidden(each.rpartition("/")[2])]

    def _pages(self, method: str, prefix: str, *markers: str) -> Iterator[Mapping[str, Any]]:
        """Yield the pages of a listing. A page that is not the last has the ``markers`` of the next one, at least the
        first of them, as Next..."""
        arguments: dict[str, Any] = {"Bucket": self._bucket, "Prefix": self._prefix + prefix}
        while True:
            with self._translating("list", prefix):
                page = _check_response(method, self.client.get().call_s3(method, **arguments), self.root)
                if page["IsTruncated"] and f"Next{markers[0]}" not in page:
                    raise _not_from_s3(method, f"Next{markers[0]} is missing", self.root)
            yield page
            if not page["IsTruncated"]:
                return
            arguments.update({marker: page.get(f"Next{marker}", "") for marker in markers})


class _BodyError(OSError):
    """A truncated response body; a retry may help."""


def _check_response(method: str, answer: Any, path: str) -> Any:
    """Return the response if it has all fields that S3 sends. Raises StorageUnavailableError.

    fsspec returns None for a request whose task was cancelled.
    """
    if not isinstance(answer, dict):
        raise _not_from_s3(method, "there was none", path)
    missing = [name for name in _ALWAYS_ANSWERED.get(method, ()) if name not in answer]
    if missing:
        raise _not_from_s3(method, f"{' and '.join(missing)} missing", path)
    headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    if method in ("delete_object", "abort_multipart_upload") and "html" in headers.get("content-type", ""):
        raise _not_from_s3(method, "it is a web page", path)
    return answer


def _not_from_s3(method: str, reason: str, path: str) -> StorageUnavailableError:
    return StorageUnavailableError(
        f"{method} of {path}: not a response of S3 ({reason}); is a proxy between here and the storage?", path=path
    )


def _says_taken(error: Exception) -> bool:
    response = getattr(error.__cause__ or error, "response", None) or {}
    headers = response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    code = error_code(error)
    return code == "PreconditionFailed" or (code == "412" and "x-amz-request-id" in headers)


def _is_about_the_key(error: Exception) -> bool:
    """Return whether a client's "not found" is S3's answer about an object or an upload, as far as can be told."""
    code = error_code(error)
    operation = getattr(error.__cause__ or error, "operation_name", "")
    return code in ("NoSuchKey", "NoSuchUpload", "NoSuchVersion") or (code == "404" and operation == "HeadObject")


def _to_info(entry: Mapping[str, Any], prefix: str) -> ObjectInfo:
    return ObjectInfo(entry["Key"][len(prefix) :], entry["Size"], int(entry["LastModified"].timestamp() * 1000))


class S3OutputFile(StreamedFile):
    """A multipart upload, or a single PUT for less than one part. Not thread-safe.

    The completion of an upload may take effect and still return an error. The abort that follows then finds no upload
    and does nothing, and the object exists.
    """

    def __init__(self, store: S3Store, key: str) -> None:
        super().__init__(key, store._shown(key))
        self._store = store
        self._part = bytearray()
        self._upload_id: str | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._in_flight: deque[Future[dict[str, Any]]] = deque()
        self._done: list[dict[str, Any]] = []

    def _send(self, view: memoryview) -> None:
        data = view.cast("B")
        start = 0
        while start < data.nbytes:
            taken = data[start : start + PART_BYTES - len(self._part)]
            self._part += taken
            start += taken.nbytes
            if len(self._part) == PART_BYTES:
                self._send_part()

    def _publish(self) -> None:
        if self._upload_id is None:
            self._store.put(self.key, bytes(self._part))
        else:
            self._complete()
        self._finish()

    def _discard(self) -> None:
        for part in self._in_flight:
            part.cancel()
        for part in self._in_flight:  # a part that arrives after the abort would remain on the server
            with suppress(BaseException):
                part.result()
        if self._upload_id is not None:
            with suppress(Exception):
                self._store._call("delete", self.key, "abort_multipart_upload", UploadId=self._upload_id)
        self._finish()

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
                f"{self.key} is larger than {MAX_PARTS} parts of {PART_BYTES} bytes, S3's limit: roll segments earlier "
                "(segment.bytes)",
                path=self.key,
            )
        data = bytes(self._part)
        try:
            self._in_flight.append(self._threads.submit(self._upload, number, data))
        except RuntimeError:  # an exiting interpreter starts no threads
            while self._in_flight:
                self._done.append(self._in_flight.popleft().result())
            self._done.append(self._upload(number, data))
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
