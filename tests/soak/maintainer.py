"""A process that maintains the cluster: ``sparklog maintain --loop --mirror``, and frequent vacuums with a short age
limit."""

from __future__ import annotations

import random
import signal
import sys
import threading
import time

from sparklog.cli.commands.storage import maintain as command
from sparklog.errors import SparklogError
from sparklog.maintenance import loop
from sparklog.maintenance.gc.vacuum import vacuum
from tests.soak.worker import MIRROR, VACUUM_AGE_MS, Worker


def maintain(worker: Worker) -> None:
    threading.Thread(target=vacuum_repeatedly, args=(worker,), daemon=True).start()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # as in the command, until it installs its own handler
    loop.MAX_PROBLEM_LINES = sys.maxsize  # none is left out of what the run checks
    mirror = worker.stores[MIRROR].root
    options = command.parser().parse_args(["--bootstrap-server", worker.store.root, "--loop", "--mirror", mirror])
    while worker.going:
        try:
            if command.run(options) == 0:
                return
        except SparklogError as error:
            print(f"maintain failed: {error}", flush=True)


def vacuum_repeatedly(worker: Worker) -> None:
    """Vacuum with an age limit so short that it affects running writers, until the disturbances end: on a slow machine
    no task is faster than that."""
    chance = random.Random(worker.random.getrandbits(32))
    coordinator = worker.open()
    while worker.going and not worker.calm.exists():
        time.sleep(chance.uniform(0.5, 4))
        worker.forget_calls()
        try:
            vacuum(coordinator, VACUUM_AGE_MS, dry_run=False, force=True)
        except SparklogError as error:
            print(f"vacuum failed: {error}", flush=True)
