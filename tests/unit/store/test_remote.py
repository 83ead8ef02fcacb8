from __future__ import annotations

import gc
import io

from sparklog.store.remote import FsspecOutputFile, FsspecStore


class Upload(io.RawIOBase):
    """Like fsspec's files: publishes when closed, also by the garbage collector."""

    def __init__(self, published: list[bytes]) -> None:
        self.written = b""
        self.published = published
        self.done = False

    @property
    def closed(self) -> bool:
        return self.done

    @closed.setter
    def closed(self, value: bool) -> None:
        self.done = value

    def write(self, data: object) -> int:
        self.written += bytes(memoryview(data))  # type: ignore[arg-type]
        return len(self.written)

    def close(self) -> None:
        if not self.done:
            self.done = True
            self.published.append(self.written)

    def discard(self) -> None:
        self.written = b""


def test_stream_dropped_without_close_publishes_nothing() -> None:
    published: list[bytes] = []
    file = FsspecOutputFile(FsspecStore("gs://bucket/a", {}), "k", Upload(published))
    file.write(b"half of it")
    del file
    gc.collect()
    assert published == []


def test_closed_stream_publishes_once() -> None:
    published: list[bytes] = []
    with FsspecOutputFile(FsspecStore("gs://bucket/a", {}), "k", Upload(published)) as file:
        file.write(b"all of it")
    gc.collect()
    assert published == [b"all of it"]
