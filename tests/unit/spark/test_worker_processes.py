"""Changes made once to Spark's Python processes, and to no others."""

from __future__ import annotations

import gc
import subprocess
import sys

from sparklog.spark.stream.worker_processes import FREEZES, freeze_loaded_objects, is_of_spark

AS_DAEMON = """
import gc, sys
from importlib.machinery import ModuleSpec
sys.modules["__main__"].__spec__ = ModuleSpec("pyspark.daemon", None)
from sparklog.spark.stream.worker_processes import FREEZES, freeze_loaded_objects
counts, kept = [], []
for _ in range(2 * FREEZES):
    kept += [[] for _ in range(1000)]
    freeze_loaded_objects()
    counts.append(gc.get_freeze_count())
print([after - before >= 1000 for before, after in zip(counts, counts[1:])].count(True), len(set(counts)))
"""


def test_garbage_collection_of_other_processes_is_unchanged() -> None:
    assert not is_of_spark()
    before = gc.get_freeze_count()
    freeze_loaded_objects()
    assert gc.get_freeze_count() == before


def test_spark_processes_freeze_what_their_first_tasks_load_and_nothing_later() -> None:
    done = subprocess.run([sys.executable, "-c", AS_DAEMON], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(FREEZES - 1), str(FREEZES)]


ARRIVAL = """
import gc, sys
from importlib.machinery import ModuleSpec
from pyspark import cloudpickle
from sparklog.spark.picklable import Picklable
sent = cloudpickle.dumps(Picklable())
sys.modules["__main__"].__spec__ = ModuleSpec("pyspark.daemon", None)
before = gc.get_freeze_count()
cloudpickle.loads(sent)
print(before, gc.get_freeze_count() > 1000)
"""


def test_objects_are_frozen_when_the_first_of_sparklogs_arrives() -> None:
    done = subprocess.run([sys.executable, "-c", ARRIVAL], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "True"]


HUNG_UP = """
import sys, traceback
from importlib.machinery import ModuleSpec
sys.modules["__main__"].__spec__ = ModuleSpec("pyspark.daemon", None)
import sparklog.spark.picklable

def tell(error):
    try:
        raise error
    except Exception:
        print("a flush failed:", traceback.format_exc(), file=sys.stderr)
        traceback.print_exc()

tell(BrokenPipeError(32, "Broken pipe"))
tell(ValueError("of the user's"))
print("done")
"""


def test_spark_processes_print_all_tracebacks_but_those_of_closed_connections() -> None:
    done = subprocess.run([sys.executable, "-c", HUNG_UP], capture_output=True, text=True, check=True)
    assert done.stdout == "done\n"
    assert "Broken" not in done.stderr
    assert done.stderr.count("ValueError: of the user's") == 2


def test_other_processes_print_all_tracebacks() -> None:
    code = HUNG_UP.replace("pyspark.daemon", "a.program")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.count("BrokenPipeError") == 2
