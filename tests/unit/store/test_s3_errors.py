"""Errors of S3's client say which right, credential or setting is behind them."""

from __future__ import annotations

import pytest
from botocore.exceptions import (
    ClientError,
    EndpointConnectionError,
    NoCredentialsError,
    ProfileNotFound,
    ProxyConnectionError,
    SSLError,
)

from sparklog.errors import StorageError, StoragePermissionError, StorageUnavailableError
from sparklog.store.s3_errors import explain_s3_error, is_denied


def refused(code: str, request: str = "PutObject", message: str = "no") -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": message}}, request)


@pytest.mark.parametrize(
    ("request_name", "right"),
    [
        ("PutObject", "s3:PutObject"),
        ("UploadPart", "s3:PutObject"),
        ("GetObject", "s3:GetObject"),
        ("HeadObject", "s3:GetObject"),
        ("DeleteObject", "s3:DeleteObject"),
        ("AbortMultipartUpload", "s3:AbortMultipartUpload"),
        ("ListObjectsV2", "s3:ListBucket"),
        ("ListMultipartUploads", "s3:ListBucketMultipartUploads"),
    ],
)
def test_a_refused_request_names_its_right(request_name: str, right: str) -> None:
    error = refused("403" if request_name == "HeadObject" else "AccessDenied", request_name)
    explained = explain_s3_error(error)
    assert explained is not None
    assert explained.kind is StoragePermissionError
    assert explained.advice.startswith(f"the credentials lack {right} on it; conf/policies/s3")
    assert is_denied(error)


def test_the_right_that_the_server_names_counts() -> None:
    message = "User: x is not authorized to perform: kms:GenerateDataKey on resource: y"
    explained = explain_s3_error(refused("AccessDenied", message=message))
    assert explained is not None
    assert "lack kms:GenerateDataKey on it" in explained.advice


@pytest.mark.parametrize(
    ("error", "kind", "advice"),
    [
        (refused("ExpiredToken"), StoragePermissionError, "get new temporary credentials"),
        (refused("InvalidTokenId"), StoragePermissionError, "get new temporary credentials"),
        (refused("SignatureDoesNotMatch"), StoragePermissionError, "check the credentials"),
        (refused("RequestTimeTooSkewed"), StoragePermissionError, "set this machine's clock"),
        (refused("AuthorizationHeaderMalformed"), StorageError, "set AWS_REGION"),
        (refused("PermanentRedirect"), StorageError, "set AWS_REGION"),
        (refused("KMS.DisabledException"), StorageError, "check the key of the encryption"),
        (NoCredentialsError(), StoragePermissionError, "check the credentials"),
        (ProfileNotFound(profile="x"), StorageError, "check AWS_PROFILE"),
        (EndpointConnectionError(endpoint_url="http://x"), StorageUnavailableError, "check AWS_ENDPOINT_URL"),
        (ProxyConnectionError(proxy_url="http://x"), StorageUnavailableError, "HTTPS_PROXY and NO_PROXY"),
        (SSLError(endpoint_url="x", error="[SSL: CERTIFICATE_VERIFY_FAILED]"), StorageError, "AWS_CA_BUNDLE"),
        (SSLError(endpoint_url="x", error="[SSL: WRONG_VERSION_NUMBER]"), StorageError, "does not speak TLS"),
        (TypeError("got an unexpected keyword argument 'endpoint'"), StorageError, "no such storage option"),
        (ValueError("Invalid endpoint: x"), StorageError, "AWS_ENDPOINT_URL"),
    ],
)
def test_what_to_do_is_said(error: Exception, kind: type[StorageError], advice: str) -> None:
    explained = explain_s3_error(error)
    assert explained is not None
    assert explained.kind is kind
    assert advice in explained.advice
    assert not is_denied(error)


@pytest.mark.parametrize("error", [refused("SlowDown"), refused("NoSuchKey"), TypeError("in the client"), OSError()])
def test_other_errors_are_left_to_others(error: Exception) -> None:
    assert explain_s3_error(error) is None
