"""A seed decides a run also in another process: ``SPARKLOG_SEED`` of a failure reruns it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from tests.simulation.digests import digest_traces


def test_a_run_is_determined_by_its_seed_in_every_process() -> None:
    hash_seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"  # sets and maps of strings have another order
    command = [sys.executable, "-m", "tests.simulation.digests"]
    other = subprocess.run(
        command, env={**os.environ, "PYTHONHASHSEED": hash_seed}, capture_output=True, text=True, check=True
    )
    assert digest_traces() == json.loads(other.stdout)
