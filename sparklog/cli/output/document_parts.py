"""Base classes of the documents of ``--json``. Not for: the documents (``documents``)."""

from __future__ import annotations

from msgspec import Meta, Struct


def says(description: str) -> Meta:
    """Describe a field for docs/cli-json.md."""
    return Meta(description=description)


class Document(Struct, frozen=True, kw_only=True):
    """The object that a command prints."""


class Item(Struct, frozen=True, kw_only=True):
    """An object within a document."""
