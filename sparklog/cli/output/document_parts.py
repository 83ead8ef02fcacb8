"""What the documents of ``--json`` are made of. Not for: the documents (``documents``)."""

from __future__ import annotations

from msgspec import Meta, Struct


def says(description: str) -> Meta:
    """What a field is, for its reader."""
    return Meta(description=description)


class Document(Struct, frozen=True, kw_only=True):
    """The object that a command prints."""


class Item(Struct, frozen=True, kw_only=True):
    """An object within a document."""
