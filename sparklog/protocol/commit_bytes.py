"""Encoding and decoding of stored commits.

A commit is one JSON object on one line, readable with ``cat``, stored as ``meta/commits/<20 digits>.json``. Its last
field, ``digest``, is the SHA-256 of all bytes before it, and ``previous`` repeats the digest of the previous commit, so
an edited or exchanged commit is detected when it is read::

    {"format":3,"needs":"0.3.0","version":7,"write_id":"k3…","timestamp":1790000000000,"previous":"9f…","checksum":"00…",
     "writer":"…","actions":[{"action":"append","topic":"orders","partition":0,"base_offset":42,…}],"digest":"c1…"}

Rules: bytes from storage are untrusted (size-limited, every field validated by msgspec, never pickled); a commit of a
newer ``format`` is refused; unknown fields are refused, since ignoring one could mean ignoring a change. Bytes with a
wrong digest are corrupt. Bytes with the right digest are never reported as corrupt: unknown content was written so.
Not for: what a commit may contain (``commits``).
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import msgspec

from sparklog import limits
from sparklog.errors import CorruptMetadataError, InvalidRequestError, RecordListTooLargeError
from sparklog.protocol import levels
from sparklog.protocol.commits import Action, Commit, SpilledActions, commit_key

FORMAT = levels.CURRENT
"""The commit format that this code writes; it reads this one and older ones."""

_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Commit)
_ACTIONS_DECODER = msgspec.json.Decoder(list[Action])
_DIGEST_FIELD = b',"digest":"'
_TAIL_BYTES = len(_DIGEST_FIELD) + 64 + len(b'"}\n')


def actions_key(version: int, write_id: str) -> str:
    """Return the key of the actions of a large commit: ``meta/actions/00000000000000000042-<write id>.json``."""
    return f"meta/actions/{version:020d}-{write_id}.json"


class EncodedCommit(NamedTuple):
    """A commit as stored: its bytes, their digest, and the bytes of its spilled actions (empty: there are none)."""

    data: bytes
    digest: str
    spilled: bytes = b""


def encode_to_store(commit: Commit, max_inline_actions: int = limits.MAX_INLINE_ACTIONS) -> EncodedCommit:
    """Encode a commit; if it has more actions than that, or large ones, they are spilled to an object of their own
    (``actions_key``).

    Raises RecordListTooLargeError over ``limits.MAX_SPILLED_ACTIONS_BYTES``, InvalidRequestError for a commit that no
    reader would accept: once stored it could not be corrected, and the cluster could no longer be opened.
    """
    if len(commit.actions) <= max_inline_actions:
        data = _encode_readable(commit, _DECODER, limits.MAX_COMMIT_BYTES, commit.version)
        if len(data) <= limits.MAX_INLINE_ACTIONS_BYTES:
            return EncodedCommit(*_sign(data))
    actions = _encode_actions(commit)
    spilled = SpilledActions(
        path=actions_key(commit.version, commit.write_id),
        size=len(actions),
        sha256=hashlib.sha256(actions).hexdigest(),
        count=len(commit.actions),
    )
    header = msgspec.structs.replace(commit, actions=[], spilled=spilled)
    data = _encode_readable(header, _DECODER, limits.MAX_COMMIT_BYTES, commit.version)
    return EncodedCommit(*_sign(data), actions)


def _encode_actions(commit: Commit) -> bytes:
    data = _encode_readable(commit.actions, _ACTIONS_DECODER, limits.MAX_SPILLED_ACTIONS_BYTES, commit.version)
    if len(data) > limits.MAX_SPILLED_ACTIONS_BYTES:
        raise RecordListTooLargeError(
            f"the commit would take {len(data):,} bytes for {len(commit.actions):,} actions, above the limit of "
            f"{limits.MAX_SPILLED_ACTIONS_BYTES:,}; write fewer partitions from fewer tasks (repartition or coalesce "
            "before writing), or split the work into several writes",
            size=len(data),
        )
    return data


def decode_actions(data: bytes, spilled: SpilledActions, version: int) -> list[Action]:
    """Decode the spilled actions of a commit. Raises CorruptMetadataError, UnsupportedVersionError."""
    if len(data) != spilled.size or hashlib.sha256(data).hexdigest() != spilled.sha256:
        raise _corrupt(spilled.path, f"it is not the object of {spilled.size:,} bytes that commit {version} names")
    try:
        actions = _ACTIONS_DECODER.decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise levels.unknown(spilled.path, FORMAT, error) from error
    if len(actions) != spilled.count:
        raise _corrupt(spilled.path, f"it has {len(actions):,} actions, and commit {version} states {spilled.count:,}")
    return actions


def stored_digest(data: bytes) -> str:
    """Return the digest at the end of a stored commit, unverified: enough to tell two commits apart."""
    start = len(data) - _TAIL_BYTES + len(_DIGEST_FIELD)
    return data[max(start, 0) : max(start, 0) + 64].decode("ascii", "replace")


def _sign(data: bytes) -> tuple[bytes, str]:
    """Append the digest to the JSON as its last field; return both."""
    body = data[:-1]
    digest = hashlib.sha256(body).hexdigest()
    return body + _DIGEST_FIELD + digest.encode() + b'"}\n', digest


def _encode_readable(content: object, decoder: msgspec.json.Decoder[Any], limit: int, version: int) -> bytes:
    """Encode (a part of) a commit as JSON that decodes. Only the decoder validates fields, so what is to be stored is
    decoded first; over the limit it is not stored."""
    try:
        data = _ENCODER.encode(content)
        if len(data) <= limit:
            decoder.decode(data)
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidRequestError(
            f"commit {version} would not be readable: {error}; nothing was written, correct the request"
        ) from error
    return data


def decode_commit(data: bytes, version: int) -> tuple[Commit, str]:
    """Return the commit stored as ``data`` under ``version``, and its digest.

    Raises CorruptMetadataError if the bytes are not what was written, UnsupportedVersionError for a newer format and
    for intact bytes with content that this version does not know.
    """
    path = commit_key(version)
    if len(data) > limits.MAX_COMMIT_BYTES:
        raise _corrupt(path, f"it has {len(data):,} bytes, over the limit of {limits.MAX_COMMIT_BYTES:,}")
    body, tail = data[:-_TAIL_BYTES], data[-_TAIL_BYTES:]
    expected = tail[len(_DIGEST_FIELD) : len(_DIGEST_FIELD) + 64].decode("ascii", "replace")
    actual = hashlib.sha256(body).hexdigest()
    has_digest = tail.startswith(_DIGEST_FIELD) and tail.endswith(b'"}\n')
    header = None if has_digest else _decode_header(data)
    if header is not None and header.format > FORMAT:  # complete JSON without the digest that every format has
        raise levels.newer(path, header.format, header.needs)
    if not has_digest or expected != actual:
        raise _corrupt(path, f"its digest is {expected!r}, its bytes give {actual!r}: it was edited or truncated")
    return _decode_intact(body, path, version), actual


def _decode_intact(body: bytes, path: str, version: int) -> Commit:
    """Decode bytes whose digest is right: unknown content was written so, and is not corruption."""
    header = _decode_header(body + b"}")
    if header is not None and header.format > FORMAT:
        raise levels.newer(path, header.format, header.needs)
    try:
        commit = _DECODER.decode(body + b"}")
    except (msgspec.MsgspecError, RecursionError) as error:
        raise levels.unknown(path, header.format if header is not None else 0, error) from error
    if commit.version != version:
        raise _corrupt(path, f"it states that it is commit {commit.version}")
    return commit


class _Header(msgspec.Struct):
    """The fields that every format has."""

    format: int
    needs: object = ""


_HEADER_DECODER = msgspec.json.Decoder(_Header)


def _decode_header(data: bytes) -> _Header | None:
    try:
        return _HEADER_DECODER.decode(data)
    except (msgspec.MsgspecError, RecursionError):
        return None


def _corrupt(path: str, why: str) -> CorruptMetadataError:
    return CorruptMetadataError(
        f"commit {path} is not what was written: {why}; restore the file from a copy of the root. `sparklog fsck` says "
        "what else can be done; if it is the newest commit, `sparklog fsck --repair --end-at` ends the log before it",
        path=path,
    )
