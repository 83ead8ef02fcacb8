"""Local files as memory maps that keep no file open.

Rules:

* A file never changes once it has its name: it is replaced by renaming another file over it, and readers that mapped
  the old one keep it. So a map is safe.
* A map needs no descriptor once it exists, but Python's ``mmap`` keeps a copy of it before 3.13, and a consumer with
  256 open segments would use a quarter of the 1,024 descriptors that a process usually has. So libc is called directly.
  [9 µs to open; Python's 12, pyarrow's 90, since it reads the whole file ahead]
* Returned buffers keep the map alive, also after ``close``.

Not for: other storages (``read_ahead.py``).
"""

from __future__ import annotations

import ctypes
import mmap
import os

import pyarrow as pa

from sparklog.store.base import BufferFile
from sparklog.store.os_errors import OPEN_TO_READ, check_file, translate_os_error

RESIDENT_BYTES = 64 * 1024 * 1024
"""bytes read of a mapped file after which its pages are released: otherwise a process that scans a large segment seems
to use as much memory as its size (1,243 MiB against 208 for one of 1.1 GiB), and is killed where memory is limited."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)

_MAP_FAILED = ctypes.c_void_p(-1).value


class LocalInputFile(BufferFile):
    """A memory-mapped file. Thread-safe; returned buffers keep the map alive."""

    def __init__(self, key: str, path: str) -> None:
        try:
            file = os.open(path, OPEN_TO_READ)
            try:
                status = os.fstat(file)
                check_file(status)
                super().__init__(key, path, _map(file, status.st_size))
            finally:
                os.close(file)
        except OSError as error:
            raise translate_os_error(error, "read", path) from error
        self._resident = 0

    def read_at(self, position: int, length: int) -> pa.Buffer:
        mapped, data = self._data, super().read_at(position, length)
        self._resident += data.size
        if mapped is not None and self._resident > RESIDENT_BYTES:
            _release_pages(mapped)
            self._resident = data.size
        return data


class _Map:
    """Mapped pages of a file, unmapped when the last buffer on them is gone."""

    def __init__(self, file: int, size: int) -> None:
        self.address = _MAP_FAILED  # until it is mapped, for an interrupt in between
        self._size = size
        self._unmap = _libc.munmap  # a module global may be gone when the interpreter exits
        self.address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file, 0)
        if self.address == _MAP_FAILED:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))

    def __del__(self) -> None:
        if self.address != _MAP_FAILED:
            self._unmap(self.address, self._size)


def _map(file: int, size: int) -> pa.Buffer:
    if size == 0:  # the system refuses to map an empty file
        return pa.py_buffer(b"")
    pages = _Map(file, size)
    return pa.foreign_buffer(pages.address, size, base=pages)


def _release_pages(data: pa.Buffer) -> None:
    """Release the pages read so far to the system, which keeps them cached; returned buffers stay valid."""
    if hasattr(mmap, "MADV_DONTNEED"):
        _libc.madvise(data.address, data.size, mmap.MADV_DONTNEED)
