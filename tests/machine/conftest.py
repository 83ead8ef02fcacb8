"""One test at a time looks at the machine or changes it: others of the same run would be taken for what it has left."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator

import pytest

from scripts.servers.common import SERVERS


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    SERVERS.mkdir(exist_ok=True)
    with open(SERVERS / "machine.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
