"""Custom partitioners for tests."""

from __future__ import annotations

from collections.abc import Sequence

none = None


def by_length(keys: Sequence[bytes | None], partitions: int) -> list[int | None]:
    return [None if key is None else len(key) % partitions for key in keys]


def too_few(keys: Sequence[bytes | None], partitions: int) -> list[int]:
    return [0]


def too_large(keys: Sequence[bytes | None], partitions: int) -> list[int]:
    return [partitions] * len(keys)


def words(keys: Sequence[bytes | None], partitions: int) -> list[str]:
    return ["first"] * len(keys)
