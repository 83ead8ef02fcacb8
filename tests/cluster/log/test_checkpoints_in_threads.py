"""Threads of a fresh process read a checkpoint at the same time, as the lanes of the maintenance loop do.

msgspec 0.22 crashes with SIGSEGV if two threads are the first to decode a type that holds other types.
Without decoders created at import, every second of these processes crashed.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from sparklog.coordinator import create_cluster

PROGRAM = """
import sys, threading
sys.setswitchinterval(1e-6)
from sparklog.log.checkpoints.checkpoint import read_newest_state
from sparklog.store.local import LocalStore
store, gate = LocalStore(sys.argv[1]), threading.Barrier(6)
def read():
    gate.wait()
    read_newest_state(store)
threads = [threading.Thread(target=read) for _ in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_concurrent_first_reads_of_a_checkpoint_do_not_crash_the_process(tmp_path: Path) -> None:
    cluster = create_cluster(str(tmp_path / "cluster"))
    cluster.create_topic("orders", 3)
    cluster.log.write_checkpoint()
    for _ in range(4):
        done = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path / "cluster")], capture_output=True)
        assert done.returncode == 0, done.stderr.decode()
