"""The bytes that a commit is stored as.

A commit is one JSON object on one line, readable with ``cat``, stored as ``meta/commits/<20 digits>.json``. It carries
any number of actions that take effect together. Its last field, ``digest``, is the SHA-256 of all bytes before it, and
``previous`` repeats the digest of the commit before, so an edited or exchanged commit is found when it is read::

    {"format":2,"needs":"0.2.0","version":7,"write_id":"k3…","timestamp":1790000000000,"previous":"9f…","checksum":"00…",
     "writer":"…","actions":[{"action":"append","topic":"orders","partition":0,"base_offset":42,…}],"digest":"c1…"}

Rules: bytes from storage are untrusted (size-limited, every field validated by msgspec, never pickled); a commit of a
newer ``format`` is refused; unknown fields are refused, since ignoring one could mean ignoring a change. Bytes with a
wrong digest are damaged. Bytes with the right one are never called so: what is unknown about them was written so.
Not for: what a commit may hold (``commits``).
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import msgspec

from sparklog import limits
from sparklog.errors import CorruptMetadataError, InvalidRequestError, RecordListTooLargeError
from sparklog.protocol import levels
from sparklog.protocol.commits import Action, Commit, SpilledActions, commit_key

FORMAT = levels.CURRENT
"""The commit format this code writes; it reads this one and older ones."""

_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Commit)
_ACTIONS_DECODER = msgspec.json.Decoder(list[Action])
_DIGEST_FIELD = b',"digest":"'
_TAIL_BYTES = len(_DIGEST_FIELD) + 64 + len(b'"}\n')


def actions_key(version: int, write_id: str) -> str:
    """Where the actions of a commit lie that has too many: ``meta/actions/00000000000000000042-<write id>.json``."""
    return f"meta/actions/{version:020d}-{write_id}.json"


class EncodedCommit(NamedTuple):
    """A commit as it is stored: its bytes, their digest, and the bytes of the object beside it (none where empty)."""

    data: bytes
    digest: str
    spilled: bytes = b""


def encode_to_store(commit: Commit) -> EncodedCommit:
    """The stored bytes of a commit, whose actions go into an object of their own (``actions_key``) where they are many.

    Raises RecordListTooLargeError over ``limits.MAX_SPILLED_ACTIONS_BYTES``, InvalidRequestError as ``encode_commit``.
    """
    if len(commit.actions) <= limits.MAX_INLINE_ACTIONS:
        data = _encode_readable(commit)
        if len(data) <= limits.MAX_INLINE_ACTIONS_BYTES:
            return EncodedCommit(*_sign(data))
    beside = _encode_actions(commit)
    spilled = SpilledActions(
        path=actions_key(commit.version, commit.write_id),
        size=len(beside),
        sha256=hashlib.sha256(beside).hexdigest(),
        count=len(commit.actions),
    )
    data = _encode_readable(msgspec.structs.replace(commit, actions=[], spilled=spilled))
    return EncodedCommit(*_sign(data), beside)


def _encode_actions(commit: Commit) -> bytes:
    try:
        data = _ENCODER.encode(commit.actions)
        if len(data) <= limits.MAX_SPILLED_ACTIONS_BYTES:
            _ACTIONS_DECODER.decode(data)
    except _UNREADABLE as error:
        raise _unreadable(commit, error) from error
    if len(data) > limits.MAX_SPILLED_ACTIONS_BYTES:
        raise RecordListTooLargeError(
            f"the commit would take {len(data):,} bytes for {len(commit.actions):,} actions, and a commit may have "
            f"{limits.MAX_SPILLED_ACTIONS_BYTES:,}; write fewer partitions from fewer tasks (repartition or coalesce "
            "before writing), or split the work into several writes",
            size=len(data),
        )
    return data


def with_actions(commit: Commit, actions: list[Action]) -> Commit:
    """A commit as it was before its actions were put beside it."""
    return msgspec.structs.replace(commit, actions=actions, spilled=None)


def decode_actions(data: bytes, spilled: SpilledActions, version: int) -> list[Action]:
    """The actions that lie beside a commit. Raises CorruptMetadataError, UnsupportedVersionError."""
    if len(data) != spilled.size or hashlib.sha256(data).hexdigest() != spilled.sha256:
        raise _corrupt(spilled.path, f"it is not the object of {spilled.size:,} bytes that commit {version} names")
    try:
        actions = _ACTIONS_DECODER.decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise levels.unknown(spilled.path, FORMAT, error) from error
    if len(actions) != spilled.count:
        raise _corrupt(spilled.path, f"it holds {len(actions):,} actions, and commit {version} says {spilled.count:,}")
    return actions


def stored_digest(data: bytes) -> str:
    """The digest that a stored commit ends with, unchecked: enough to tell two commits apart."""
    start = len(data) - _TAIL_BYTES + len(_DIGEST_FIELD)
    return data[max(start, 0) : max(start, 0) + 64].decode("ascii", "replace")


def encode_commit(commit: Commit) -> tuple[bytes, str]:
    """The stored bytes of a commit and their digest.

    Raises RecordListTooLargeError over ``limits.MAX_COMMIT_BYTES``, InvalidRequestError for a commit that no reader
    would take: once stored it could not be mended, and the cluster could not be opened any more.
    """
    data, digest = _sign(_encode_readable(commit))
    if len(data) > limits.MAX_COMMIT_BYTES:
        raise RecordListTooLargeError(
            f"the commit would take {len(data):,} bytes for {len(commit.actions):,} actions, and a commit may have "
            f"{limits.MAX_COMMIT_BYTES:,}; write fewer partitions from fewer tasks (repartition or coalesce before "
            "writing), or split the work into several writes",
            size=len(data),
        )
    return data, digest


def _sign(data: bytes) -> tuple[bytes, str]:
    """The JSON with its digest as the last field, and the digest."""
    body = data[:-1]
    digest = hashlib.sha256(body).hexdigest()
    return body + _DIGEST_FIELD + digest.encode() + b'"}\n', digest


def _encode_readable(commit: Commit) -> bytes:
    """JSON that decodes. Fields are checked by the decoder alone, so what is about to be stored goes through it."""
    try:
        data = _ENCODER.encode(commit)
        if len(data) <= limits.MAX_COMMIT_BYTES:
            _DECODER.decode(data)
    except _UNREADABLE as error:
        raise _unreadable(commit, error) from error
    return data


_UNREADABLE = (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError)


def _unreadable(commit: Commit, error: Exception) -> InvalidRequestError:
    return InvalidRequestError(
        f"commit {commit.version} would not be readable: {error}; nothing was written, correct the request"
    )


def decode_commit(data: bytes, version: int) -> tuple[Commit, str]:
    """The commit stored as ``data`` under number ``version``, and its digest.

    Raises CorruptMetadataError when the bytes are not what was written, UnsupportedVersionError for a newer format, and
    for bytes that are what was written and have something in them that this version does not know.
    """
    path = commit_key(version)
    if len(data) > limits.MAX_COMMIT_BYTES:
        raise _corrupt(path, f"it has {len(data):,} bytes, over the limit of {limits.MAX_COMMIT_BYTES:,}")
    body, tail = data[:-_TAIL_BYTES], data[-_TAIL_BYTES:]
    expected = tail[len(_DIGEST_FIELD) : len(_DIGEST_FIELD) + 64].decode("ascii", "replace")
    actual = hashlib.sha256(body).hexdigest()
    has_digest = tail.startswith(_DIGEST_FIELD) and tail.endswith(b'"}\n')
    header = None if has_digest else _header(data)
    if header is not None and header.format > FORMAT:  # whole JSON without a digest where every format has one
        raise levels.newer(path, header.format, header.needs)
    if not has_digest or expected != actual:
        raise _corrupt(path, f"its digest says {expected!r}, its bytes give {actual!r}: it was edited or cut short")
    return _decode_intact(body, path, version), actual


def _decode_intact(body: bytes, path: str, version: int) -> Commit:
    """The commit in bytes whose digest is right: whatever is unknown about it was written so, and is no damage."""
    header = _header(body + b"}")
    if header is not None and header.format > FORMAT:
        raise levels.newer(path, header.format, header.needs)
    try:
        commit = _DECODER.decode(body + b"}")
    except (msgspec.MsgspecError, RecursionError) as error:
        raise levels.unknown(path, header.format if header is not None else 0, error) from error
    if commit.version != version:
        raise _corrupt(path, f"it says it is commit {commit.version}")
    return commit


class _Header(msgspec.Struct):
    """What every format has, whatever else changes."""

    format: int
    needs: object = ""


_HEADER_DECODER = msgspec.json.Decoder(_Header)


def _header(data: bytes) -> _Header | None:
    try:
        return _HEADER_DECODER.decode(data)
    except (msgspec.MsgspecError, RecursionError):
        return None


def _corrupt(path: str, why: str) -> CorruptMetadataError:
    return CorruptMetadataError(
        f"commit {path} is not what was written: {why}; restore the file from a copy of the root. `sparklog fsck` says "
        "what else can be done; `sparklog fsck --repair --end-at` ends the log before it where it is the newest commit",
        path=path,
    )
