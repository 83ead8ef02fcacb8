"""Makes Spark's Python processes start faster.

They import pyspark from where it is installed instead of from the zip that lies in it.

Spark puts ``pyspark.zip`` first in their path, so that machines without pyspark have one. Python keeps no compiled code
of what it imports from a zip: each process compiles pyspark anew, for half a second, and each start of a streaming
query starts such a process.

They look for garbage less often. By default Python does so more than a hundred times while it imports what they need,
for 50 ms, and finds nothing.

Rules: the standard library only; the zip goes only where the installed pyspark that comes next is the one that holds
it; another ``sitecustomize`` further down the path still runs. Not for: anything else.
"""

import gc
import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

ZIP = "pyspark.zip"
NEW_OBJECTS = 50_000
"""New objects after which Python looks for garbage among them, instead of 700."""


def without_zip(path: list[str]) -> list[str]:
    """The path without pyspark's zip, or as it is where that may be needed."""
    zips = [entry for entry in path if os.path.basename(entry) == ZIP]
    rest = [entry for entry in path if entry not in zips]
    found = PathFinder.find_spec("pyspark", rest) if zips else None
    if found is None or found.origin is None:
        return path
    home = os.path.realpath(os.path.dirname(found.origin)) + os.sep
    return rest if all(os.path.realpath(entry).startswith(home) for entry in zips) else path


def run_next(path: list[str]) -> None:
    """Run the ``sitecustomize`` that this one hides, if there is one."""
    here = os.path.dirname(os.path.abspath(__file__))
    found = PathFinder.find_spec("sitecustomize", [entry for entry in path if os.path.abspath(entry) != here])
    if found is not None and found.loader is not None:
        found.loader.exec_module(module_from_spec(found))


if __name__ == "sitecustomize":
    gc.set_threshold(NEW_OBJECTS)
    sys.path[:] = without_zip(sys.path)
    run_next(sys.path)
