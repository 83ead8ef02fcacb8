"""Functions that the tests run in separate processes. Each is started by name, so this is not a test module."""

from __future__ import annotations

import os
import pickle
import sys
from typing import Any

from sparklog.errors import ObjectExistsError, StorageError
from sparklog.store.base import Store

KEYS = 20
REFUSED = 3


def race(pickled: bytes, number: int, barrier: Any, answers: Any) -> None:
    """Try to create each key at the same moment as all other processes; report the keys won."""
    store: Store = pickle.loads(pickled)
    won = []
    list(store.list())  # connect first, so that no process is late
    for key in range(KEYS):
        barrier.wait(120)
        try:
            store.put_if_absent(f"meta/commits/{key}.json", b"%d of %d" % (number, key))
        except ObjectExistsError:
            continue
        won.append(key)
    answers.put((number, won))


def stream_forever(pickled: bytes, ready: Any) -> None:
    """Write to a stream, signal that it has begun, and continue until killed."""
    store: Store = pickle.loads(pickled)
    file = store.open_output("orders-0/1.log")
    while True:
        file.write(bytes(1024 * 1024))
        ready.set()


def create_forever(pickled: bytes, ready: Any) -> None:
    """Create and overwrite objects whose bytes state their size, until killed."""
    store: Store = pickle.loads(pickled)
    number = 0
    while True:
        size = 1 + number * 7919 % 300_000
        data = (b"%d " % size).ljust(size + 10, b"x")
        store.put_if_absent(f"meta/commits/{number}.json", data)
        store.put("meta/latest.json", data)
        number += 1
        if number == 5:
            ready.set()


def hold_lock(pickled: bytes, ready: Any) -> None:
    """Take the commit lock and keep it until killed."""
    store: Store = pickle.loads(pickled)
    with store.commit_lock():
        ready.set()
        while True:
            os.read(0, 0)
            ready.wait(1)


def use_in_forked_child(pickled: bytes, answers: Any) -> None:
    """Use the store and open files, fork, and use the store in the child, and afterwards in the parent."""
    store: Store = pickle.loads(pickled)
    store.put("parent", b"1")
    stream, reader = store.open_output("stream"), store.open_input("parent")
    stream.write(b"2")
    reader.read_at(0, 1)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            assert store.get("parent") == b"1"
            store.put_if_absent("child", b"3")
            assert reader.read_at(0, 1).to_pybytes() == b"1"
            del store, stream, reader
            status = 0
        except StorageError as error:
            status = REFUSED if "forked" in str(error) else 1
        finally:
            sys.stderr.flush()
            os._exit(status)
    _, status = os.waitpid(child, 0)
    stream.close()
    answers.put((os.waitstatus_to_exitcode(status), sorted(info.key for info in store.list())))
