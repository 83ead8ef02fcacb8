"""Translation of client errors into ours: what a caller does next must not depend on the storage."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest
from botocore.exceptions import ClientError, NoCredentialsError
from s3fs.errors import translate_boto_error

from sparklog.clock import ManualClock
from sparklog.errors import (
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    StorageFullError,
    StoragePermissionError,
    StorageUnavailableError,
)
from sparklog.store.hdfs import translate_hdfs_error
from sparklog.store.os_errors import translate_os_error
from sparklog.store.process_local import ProcessLocal
from sparklog.store.remote import is_about_the_object, is_past_the_end, translate_client_error
from sparklog.store.s3 import CONFLICT_PAUSES_SECONDS, S3Store


@pytest.mark.parametrize(
    ("code", "operation", "kind"),
    [
        (errno.ENOENT, "read", ObjectNotFoundError),
        (errno.ENOTDIR, "read", ObjectNotFoundError),
        (errno.EISDIR, "read", ObjectNotFoundError),
        (errno.ENOTDIR, "write", StorageError),
        (errno.EEXIST, "create", ObjectExistsError),
        (errno.EEXIST, "write", StorageError),
        (errno.EACCES, "write", StoragePermissionError),
        (errno.EROFS, "write", StoragePermissionError),
        (errno.ENOSPC, "write", StorageFullError),
        (errno.EDQUOT, "write", StorageFullError),
        (errno.EIO, "read", StorageUnavailableError),
        (errno.ESTALE, "write", StorageUnavailableError),
        (errno.EMFILE, "read", StorageUnavailableError),
    ],
)
def test_errors_of_the_system(code: int, operation: str, kind: type[StorageError]) -> None:
    error = translate_os_error(OSError(code, os.strerror(code)), operation, "/srv/log/a")
    assert type(error) is kind
    assert error.path == "/srv/log/a"
    assert "/srv/log/a" in str(error)


def from_s3(code: str) -> Exception:
    return translate_boto_error(ClientError({"Error": {"Code": code, "Message": code}}, "PutObject"))


@pytest.mark.parametrize(
    ("code", "operation", "kind"),
    [
        ("NoSuchKey", "read", ObjectNotFoundError),
        ("404", "read", ObjectNotFoundError),
        ("NoSuchBucket", "write", StorageError),
        ("AccessDenied", "write", StoragePermissionError),
        ("SignatureDoesNotMatch", "read", StoragePermissionError),
        ("QuotaExceeded", "write", StorageFullError),
        ("EntityTooLarge", "write", StorageError),
        ("NotImplemented", "write", StorageError),
        ("SlowDown", "write", StorageUnavailableError),
        ("InternalError", "write", StorageUnavailableError),
        ("503", "read", StorageUnavailableError),
        ("RequestTimeout", "write", StorageUnavailableError),
        ("SomethingNew", "write", StorageUnavailableError),
    ],
)
def test_errors_of_s3(code: str, operation: str, kind: type[StorageError]) -> None:
    error = translate_client_error(from_s3(code), operation, "s3://bucket/a")
    assert type(error) is kind
    assert "s3://bucket/a" in str(error)


class Answer(Exception):
    """An error of the clients of Azure (``status_code``) and Google Cloud (``code``)."""

    def __init__(self, text: str, **status: int) -> None:
        super().__init__(text)
        self.__dict__.update(status)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Answer("not authorized to perform this operation\nErrorCode:AuthorizationPermissionMismatch", status_code=403),
         StoragePermissionError),
        (Answer("AuthenticationFailed", status_code=401), StoragePermissionError),
        (Answer("ServerBusy", status_code=503), StorageUnavailableError),
        (Answer("Invalid Credentials, 401", code=401), StoragePermissionError),
        (OSError("Forbidden: https://storage.googleapis.com/b/o\nme does not have storage.objects.create access"),
         StoragePermissionError),
        (OSError("Forbidden: https://storage.googleapis.com/b/o\nRate Limit Exceeded"), StorageUnavailableError),
        (OSError("timed out"), StorageUnavailableError),
    ],
)  # fmt: skip
def test_errors_of_azure_and_google(error: Exception, kind: type[StorageError]) -> None:
    found = translate_client_error(error, "write", "abfs://b/a")
    assert type(found) is kind
    assert "\n" not in str(found)


def test_missing_credentials_are_a_permission_error() -> None:
    assert type(translate_client_error(NoCredentialsError(), "read", "s3://b/a")) is StoragePermissionError


@pytest.mark.parametrize("mistake", [TypeError("in the client"), AttributeError("'coroutine'"), KeyError("Error")])
@pytest.mark.parametrize("operation", ["read", "write", "list", "delete"])
def test_unexpected_client_exceptions_are_storage_errors(mistake: Exception, operation: str) -> None:
    error = translate_client_error(mistake, operation, "s3://b/a")
    assert type(error) is StorageError
    assert not error.nothing_written  # the client may have raised it after it sent the request


def test_read_past_the_end_is_recognized() -> None:
    assert is_past_the_end(from_s3("InvalidRange"))
    assert not is_past_the_end(from_s3("InvalidRequest"))


class Client:
    """Answers each put_object with the next of these errors; None means success."""

    def __init__(self, answers: list[Exception | None]) -> None:
        self.answers = answers
        self.calls = 0

    def call_s3(self, method: str, **arguments: Any) -> dict[str, object]:
        assert method == "put_object"
        assert arguments["IfNoneMatch"] == "*"
        self.calls += 1
        error = self.answers.pop(0)
        if error is not None:
            raise error
        return {"ETag": '"1"'}


def create(*answers: Exception | None) -> Client:
    client = Client(list(answers))
    store = S3Store("s3://bucket/a", {}, clock=ManualClock())
    store.client = ProcessLocal(lambda: client)
    store.put_if_absent("meta/1", b"1")
    return client


def of_aws() -> Exception:
    details = {"Code": "PreconditionFailed", "Message": "no", "Condition": "If-None-Match"}
    return translate_boto_error(ClientError({"Error": details}, "PutObject"))


def without_a_word(headers: dict[str, str]) -> Exception:
    metadata = {"HTTPStatusCode": 412, "HTTPHeaders": headers}
    response = {"Error": {"Code": "412", "Message": "Precondition Failed"}, "ResponseMetadata": metadata}
    return translate_boto_error(ClientError(response, "PutObject"))


@pytest.mark.parametrize(
    "error", [of_aws(), from_s3("PreconditionFailed"), without_a_word({"x-amz-request-id": "tx00000abc"})]
)
def test_every_servers_answer_for_a_taken_key_is_the_same_error(error: Exception) -> None:
    with pytest.raises(ObjectExistsError):
        create(error)


def test_412_from_a_proxy_is_not_an_existing_object() -> None:
    with pytest.raises(StorageError) as caught:
        create(without_a_word({"content-type": "text/html"}))
    assert not isinstance(caught.value, ObjectExistsError)


@pytest.mark.parametrize("code", ["BucketAlreadyExists", "BucketAlreadyOwnedByYou", "OperationAborted"])
def test_unrelated_conflict_is_not_an_existing_object(code: str) -> None:
    with pytest.raises(StorageError) as caught:
        create(from_s3(code))
    assert not isinstance(caught.value, ObjectExistsError)


def test_create_without_credentials_has_certainly_written_nothing() -> None:
    with pytest.raises(StoragePermissionError) as caught:
        create(NoCredentialsError())
    assert caught.value.nothing_written
    with pytest.raises(StoragePermissionError) as caught:
        create(from_s3("ConditionalRequestConflict"), NoCredentialsError())
    assert not caught.value.nothing_written


@pytest.mark.parametrize("code", ["AccessDenied", "ExpiredToken", "NoSuchBucket", "InvalidRequest", "SlowDown"])
def test_refused_create_may_follow_a_successful_earlier_attempt_of_the_client(code: str) -> None:
    with pytest.raises(StorageError) as caught:
        create(from_s3(code))
    assert not caught.value.nothing_written


@pytest.mark.parametrize(("code", "taken"), [("BlobAlreadyExists", True), ("ContainerBeingDeleted", False)])
def test_conflicts_of_azure_are_an_existing_object_only_if_it_exists(code: str, taken: bool) -> None:
    cause = OSError("409")
    cause.error_code = code  # type: ignore[attr-defined]
    error = FileExistsError("File already exists!")
    error.__context__ = cause
    assert is_about_the_object(error) is taken


def test_conflicting_requests_are_retried() -> None:
    assert create(from_s3("ConditionalRequestConflict"), from_s3("409"), None).calls == 3


def test_endless_conflicts_are_unavailable() -> None:
    with pytest.raises(StorageUnavailableError):
        create(*[from_s3("ConditionalRequestConflict")] * (len(CONFLICT_PAUSES_SECONDS) + 1))


def test_other_errors_of_a_create_are_not_retried() -> None:
    with pytest.raises(StorageUnavailableError):
        create(from_s3("InternalError"))
    with pytest.raises(StoragePermissionError):
        create(from_s3("AccessDenied"))


def from_java(name: str) -> Exception:
    return RuntimeError(f'RPCError("org.apache.hadoop.{name}", "Text\\n\\tat org.apache.Somewhere(File.java:1)")')


@pytest.mark.parametrize(
    ("error", "operation", "kind"),
    [
        (FileNotFoundError("/a"), "read", ObjectNotFoundError),
        (FileNotFoundError("/a"), "write", StorageError),
        (from_java("fs.ParentNotDirectoryException"), "read", ObjectNotFoundError),
        (from_java("fs.ParentNotDirectoryException"), "write", StorageError),
        (from_java("security.AccessControlException"), "write", StoragePermissionError),
        (from_java("hdfs.protocol.DSQuotaExceededException"), "write", StorageFullError),
        (from_java("hdfs.server.namenode.SafeModeException"), "write", StorageUnavailableError),
        (OSError("RPC listener disconnected"), "read", StorageUnavailableError),
    ],
)
def test_errors_of_hdfs(error: Exception, operation: str, kind: type[StorageError]) -> None:
    translated = translate_hdfs_error(error, operation, "hdfs://n/a")
    assert type(translated) is kind
    assert "hdfs://n/a" in str(translated)
    assert "Somewhere" not in str(translated)
