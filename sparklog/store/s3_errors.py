"""Which right, credential or setting is behind an error of S3's client, and what to do about it.

Rules:

* A refusal (403) names the right that the request needs, by the name that policies have for it.
* Most of what is wrong with credentials or settings stays wrong until somebody changes it: a StoragePermissionError or
  StorageError, which no client retries on its own. An address that does not answer may answer later.
* Pure: what a refused read is about (a missing right, or a missing object) is found out by the store (``s3.py``).

Not for: errors that are not listed here (``remote.py``), and what became of a write.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from sparklog.errors import StorageError, StoragePermissionError, StorageUnavailableError

_RIGHTS = {
    "PutObject": "s3:PutObject",
    "CreateMultipartUpload": "s3:PutObject",
    "UploadPart": "s3:PutObject",
    "CompleteMultipartUpload": "s3:PutObject",
    "GetObject": "s3:GetObject",
    "HeadObject": "s3:GetObject",
    "DeleteObject": "s3:DeleteObject",
    "AbortMultipartUpload": "s3:AbortMultipartUpload",
    "ListObjectsV2": "s3:ListBucket",
    "ListMultipartUploads": "s3:ListBucketMultipartUploads",
}
"""The right that each request needs."""

_DENIED = frozenset({"AccessDenied", "AllAccessDisabled", "403", "Forbidden"})
_POLICIES = "conf/policies/s3 has the policy of each role, docs/storage-setup.md says how to use them"

_KEYS = (
    "check the credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or the storage options key and "
    "secret"
)
_RENEW = (
    "get new temporary credentials (key, secret and token belong together), or let the client do so: a role of the "
    "machine, or credential_process in a profile"
)
_REGION = "set AWS_REGION to the region of the bucket, or the storage option client_kwargs={'region_name': …}"
_ENCRYPTION = (
    "check the key of the encryption, SSEKMSKeyId in the storage option s3_additional_kwargs, and who may use it"
)
_CLOCK = "set this machine's clock, S3 refuses requests that are off by more than 15 minutes"
_ENDPOINT = "check AWS_ENDPOINT_URL or the storage option endpoint_url, and the network"
_AUTHORITY = (
    "the certificate is not from an authority that this machine trusts: name a file with the authority's certificate "
    "in AWS_CA_BUNDLE, or in the storage option client_kwargs={'verify': …}"
)

_ADVICE = {
    **dict.fromkeys(("InvalidAccessKeyId", "InvalidClientTokenId", "SignatureDoesNotMatch"), _KEYS),
    **dict.fromkeys(("ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired"), _RENEW),
    **dict.fromkeys(("InvalidToken", "InvalidTokenId", "InvalidSecurity"), _RENEW),
    "RequestTimeTooSkewed": _CLOCK,
}
"""What to do about a refusal that is not about a right."""

_WRONG_REGION = frozenset(
    {"AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect", "301"}
)
_NO_CONNECTION = frozenset({"EndpointConnectionError", "ConnectTimeoutError", "ProxyConnectionError"})
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL")
_SETTINGS = frozenset(
    {"ProfileNotFound", "ConfigParseError", "ConfigNotFound", "InvalidConfigError", "InvalidRegionError", "ValueError"}
)


class Explanation(NamedTuple):
    """The error to raise, what the server or client said, and what to do."""

    kind: type[StorageError]
    said: str
    advice: str


def explain_s3_error(error: BaseException) -> Explanation | None:
    """Return what a client's error is about, None if this module does not know it. Pure."""
    cause = error.__cause__ or error
    code, message = _code_of(cause)
    if not code:
        return _explain_unsent(cause)
    said = f"{code}: {message}"
    if code in _DENIED:
        return Explanation(StoragePermissionError, said, f"{_lacks(cause, message)}; {_POLICIES}")
    if code in _ADVICE:
        return Explanation(StoragePermissionError, said, _ADVICE[code])
    if code in _WRONG_REGION:
        return Explanation(StorageError, said, _REGION)
    if code.lower().startswith("kms"):
        return Explanation(StorageError, said, _ENCRYPTION)
    return None


def is_denied(error: BaseException) -> bool:
    """Return whether a request was refused for want of a right. S3 says so of a missing object, too, to those who may
    not list it."""
    return _code_of(error.__cause__ or error)[0] in _DENIED


def lacks_to_read(refusal: str) -> str:
    """Return the message of a refused read, and refused listing, of an object that may be missing."""
    return f"{refusal}. Or it does not exist, and the credentials lack s3:ListBucket, without which S3 does not tell"


def _code_of(cause: BaseException) -> tuple[str, str]:
    response = getattr(cause, "response", None)
    details = response.get("Error", {}) if isinstance(response, dict) else {}
    return str(details.get("Code", "")), str(details.get("Message", ""))


def _lacks(cause: BaseException, message: str) -> str:
    """Return which right the credentials lack: the one that the server names, or else that of the request."""
    named = re.search(r"not authorized to perform: ([a-z0-9-]+:\w+)", message)
    right = named.group(1) if named else _RIGHTS.get(getattr(cause, "operation_name", ""), "the right")
    return f"the credentials lack {right} on it"


def _explain_unsent(cause: BaseException) -> Explanation | None:
    """Explain an error that is not a response."""
    name, text = type(cause).__name__, str(cause)
    said = f"{name}: {text}"
    if name == "SSLError" and "CERTIFICATE_VERIFY_FAILED" in text:
        return Explanation(StorageError, said, _AUTHORITY)
    if name == "SSLError" and any(reason in text for reason in _NO_TLS):
        return Explanation(StorageError, said, f"the address does not speak TLS: write http://, or {_ENDPOINT}")
    if name in _NO_CONNECTION:
        proxy = ", HTTPS_PROXY and NO_PROXY" if name == "ProxyConnectionError" else ""
        return Explanation(StorageUnavailableError, said, _ENDPOINT + proxy)
    if "Credential" in name or "Token" in name:
        return Explanation(StoragePermissionError, said, _KEYS)
    if name == "TypeError" and "unexpected keyword argument" in text:
        return Explanation(StorageError, said, "the client has no such storage option: s3fs documents the ones it has")
    if name in _SETTINGS:
        return Explanation(StorageError, said, "check AWS_PROFILE, AWS_ENDPOINT_URL and the storage options")
    return None
