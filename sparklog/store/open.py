"""Opens the store of an address.

Rules: only storages whose put-if-absent was tested with racing processes are opened; any other protocol of fsspec is
refused with a reason, because its ``mode="create"`` checks first and writes afterwards, and two winners of one commit
would silently lose acknowledged records.

    a path, ~/log, file:///srv/log      local or mounted file system    temporary file, then link
    memory://name                       memory of this process          a lock
    s3://bucket/folder (s3a, s3n)       S3 and servers with its API     PUT with If-None-Match: *
    gs://bucket/folder (gcs)            Google Cloud Storage            upload if the generation is 0
    abfs://container/folder (abfss, az) Azure                           PUT with If-None-Match: *
    hdfs://namenode:8020/folder         HDFS (and viewfs)               temporary file, then rename without overwriting

The last four need the extra of their name: ``pip install 'sparklog[s3]'``, ``[gcs]``, ``[azure]``, ``[hdfs]``.

Not for: opening a cluster; see ``sparklog.log``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from urllib.parse import unquote, urlsplit

from sparklog.errors import UnsupportedStoreError
from sparklog.store.base import Store
from sparklog.store.local import LocalStore
from sparklog.store.memory import MemoryStore
from sparklog.store.process_local import no_fork
from sparklog.types import without_secrets

SUPPORTED = "a local path, file://, memory://, s3://, gs://, abfs:// or hdfs://"

DATABRICKS_VARIABLE = "DATABRICKS_RUNTIME_VERSION"
"""The variable that is set in every process of a Databricks cluster."""
_DATABRICKS_MOUNTS = ("/Volumes/", "/Workspace/", "/dbfs/")

_NO_CONDITIONAL_WRITE = "has no write that fails if the name is taken"
_BELOW_VOLUME = "give the address of the storage below it, such as abfss://, s3:// or gs:// (DESCRIBE VOLUME shows it)"
_REFUSED = {
    "http": "is read-only",
    "https": "is read-only",
    "ftp": _NO_CONDITIONAL_WRITE,
    "sftp": "is not verified: whether a rename replaces its target depends on the server",
    "ssh": "is not verified: whether a rename replaces its target depends on the server",
    "smb": "is not verified; mount the share and give the path of the mount, if it has hard links",
    "webhdfs": "hides a lost rename: its client answers a rename onto a taken name as if it had worked; use hdfs://",
    "dbfs": f"has no verified conditional create; {_BELOW_VOLUME}",
    "github": _NO_CONDITIONAL_WRITE,
    "hf": _NO_CONDITIONAL_WRITE,
    "oci": "is not verified; use its S3 compatible endpoint with s3://",
    "oss": "is not verified; use its S3 compatible endpoint with s3://",
    "r2": "is spoken to as s3://, with its endpoint in AWS_ENDPOINT_URL",
    "wasb": "is the retired Azure driver; use abfs://",
    "wasbs": "is the retired Azure driver; use abfss://",
}

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*)://")
_ONE_SLASH = re.compile(r"^(s3|s3a|s3n|gs|gcs|abfs|abfss|az|hdfs|viewfs|memory|dbfs):/?([^/].*)$", re.IGNORECASE)


_NOT_FOLDERS = (
    (re.compile(r"[^/]*:\d{1,5}(?:[,/]|$)"), "looks like the address of a server"),
    (re.compile(r"[A-Za-z]:(?:[\\/]|$)|[^/]*\\"), "looks like a path of Windows"),
    (re.compile(r"[^/]*:"), "has a colon like a protocol that is not known"),
    (re.compile(r"(?:file|s3|s3a|s3n|gs|gcs|abfs|abfss|az|hdfs|viewfs|memory)//", re.IGNORECASE), "lacks a colon"),
    (re.compile(r"~"), "names a user that does not exist"),
    (re.compile(r"\$|%\w+%"), "has a variable that was not expanded"),
    (re.compile(r"[\"'<]"), "begins with a quotation mark or a placeholder"),
)
"""Beginnings of relative paths that are hardly meant as folders, and why."""


def open_store(url: str | os.PathLike[str], storage_options: Mapping[str, object] | None = None) -> Store:
    """Return the store whose root is ``url``. Creates nothing and sends no request yet.

    ``storage_options`` are passed to the storage's client (s3fs, gcsfs, adlfs; for HDFS: Hadoop settings); other
    settings come from the client's usual environment, such as ``AWS_ACCESS_KEY_ID`` and ``AWS_ENDPOINT_URL``.

    Raises ``UnsupportedStoreError`` if the address is malformed, the storage cannot arbitrate commits, or its client is
    not installed.
    """
    text = os.fspath(url)
    if text != text.strip() and not os.path.isdir(text):  # a line of a file, or of a table
        text = text.strip()
    scheme = scheme_of(text)
    if _SCHEME.match(text):
        text = scheme + text[len(scheme) :]
    _refuse_query(text, scheme)
    opener = OPENERS.get(scheme)
    if opener is None:
        reason = _REFUSED.get(scheme, "has no put-if-absent that was verified with racing processes")
        shown = without_secrets(text)
        raise UnsupportedStoreError(f"{shown}: {scheme}:// {reason}. Use {SUPPORTED}", path=shown)
    return opener(text, dict(storage_options or {}))


def _refuse_query(text: str, scheme: str) -> None:
    """Raise UnsupportedStoreError for the address of a remote storage with a query, such as a presigned one: it would
    become part of the folder's name, with a secret that every message and listing shows."""
    if scheme not in ("file", "memory") and re.search(r"[?&][^=&/]*=", text):
        shown = without_secrets(text)
        raise UnsupportedStoreError(
            f"{shown} has a query, and the address of a folder has none: give credentials as storage_options, or in "
            "the environment of the storage's client",
            path=shown,
        )


def _open_local(text: str, options: dict[str, object]) -> Store:
    path = _local_path(text)
    _refuse_databricks_mount(path)
    return LocalStore(path)


def _refuse_databricks_mount(path: str) -> None:
    """Raise UnsupportedStoreError for a folder that Databricks mounts over FUSE: it has no hard links, and fails in the
    middle of the first write."""
    if DATABRICKS_VARIABLE in os.environ and path.startswith(_DATABRICKS_MOUNTS):
        raise UnsupportedStoreError(
            f"{path} is a mount of Databricks, which cannot create a file only if its name is free: {_BELOW_VOLUME}",
            path=path,
        )


def _open_s3(text: str, options: dict[str, object]) -> Store:
    with no_fork():
        from sparklog.store.s3 import S3Store

    return S3Store(text, options)


def _open_remote(text: str, options: dict[str, object]) -> Store:
    with no_fork():
        from sparklog.store.remote import FsspecStore

    return FsspecStore(text, options)


def _open_hdfs(text: str, options: dict[str, object]) -> Store:
    with no_fork():
        from sparklog.store.hdfs import HdfsStore

    return HdfsStore(text, options)


OPENERS: dict[str, Callable[[str, dict[str, object]], Store]] = {
    "file": _open_local,
    "memory": lambda text, options: MemoryStore(_memory_name(text)),
    **dict.fromkeys(("s3", "s3a", "s3n"), _open_s3),
    **dict.fromkeys(("gs", "gcs", "abfs", "abfss", "az"), _open_remote),
    **dict.fromkeys(("hdfs", "viewfs"), _open_hdfs),
}
"""What opens the addresses of each scheme."""


def scheme_of(text: str) -> str:
    """Return the scheme of an address in lower case, ``file`` for a path. Raises UnsupportedStoreError."""
    if not text.strip() or "\0" in text:
        raise UnsupportedStoreError(f"invalid storage address {text!r}: give {SUPPORTED}", path=without_secrets(text))
    if "::" in text:
        raise UnsupportedStoreError(
            f"{without_secrets(text)}: a chain of file systems cannot arbitrate commits. Use {SUPPORTED}",
            path=without_secrets(text),
        )
    if text[:5].lower() == "file:":  # Spark writes file:/path for the location of a table
        return "file"
    match = _SCHEME.match(text)
    if match is None and (short := _ONE_SLASH.match(text)):
        shown, rest = without_secrets(text), without_secrets(short.group(2).replace("\\", "/").lstrip("/"))
        reason = _REFUSED.get(short.group(1).lower())
        meant = f"write {short.group(1)}://{rest.rpartition('@')[2]}"
        if short.group(1).lower() in ("hdfs", "viewfs"):
            meant = (
                f"write {short.group(1)}:///{rest} for the default file system, or {short.group(1)}://namenode/{rest}"
            )
        if reason is not None:
            meant = f"{short.group(1)}:// {reason}. Use {SUPPORTED}"
        raise UnsupportedStoreError(
            f"{shown!r} has one slash after the colon and would be a folder of this machine: {meant}, or ./{shown} for "
            "the folder",
            path=shown,
        )
    return match.group(1).lower() if match else "file"


def _local_path(text: str) -> str:
    if text[:5].lower() != "file:":
        path = os.path.expanduser(text)
        _refuse_by_accident(text, path)
        return os.path.abspath(path)
    parts = urlsplit(text)
    if parts.netloc.lower() not in ("", "localhost") or not parts.path.startswith("/"):
        shown = without_secrets(text)
        raise UnsupportedStoreError(
            f"{shown} is not a file of this machine: write file:///absolute/path (three slashes), or the path alone",
            path=shown,
        )
    # '?' and '#' are ordinary characters in a path, and programs that write such addresses do not escape them.
    rest = text[len("file:") :]
    path = rest[2 + len(parts.netloc) :] if rest.startswith("//") else rest
    return os.path.abspath("/" + unquote(path).lstrip("/"))


def _refuse_by_accident(text: str, path: str) -> None:
    """Raise UnsupportedStoreError for a relative path that was meant as something else: its first part is an address of
    another kind, or one of another system, or was not expanded. A folder that exists is meant."""
    why = next((why for form, why in _NOT_FOLDERS if form.match(path)), "")
    if why and not os.path.exists(path):
        shown = without_secrets(text)
        raise UnsupportedStoreError(
            f"{shown!r} {why}, and would be a folder of this name below {os.getcwd()}: give {SUPPORTED}, or ./{shown} "
            "if that is what you mean",
            path=shown,
        )


def _memory_name(text: str) -> str:
    name = text[len("memory://") :].strip("/")
    shown = without_secrets(text)
    if not name or re.search(r":[^/@]*@", name) or any(part in ("", ".", "..") for part in name.split("/")):
        raise UnsupportedStoreError(f"{shown} does not name a space in memory: write memory://name", path=shown)
    return name
