"""Changes made once to Spark's Python processes, and to no others."""

from __future__ import annotations

import gc
import subprocess
import sys

from sparklog.spark.stream.worker_processes import is_of_spark, set_aside_loaded_objects

AS_DAEMON = """
import gc, sys
from importlib.machinery import ModuleSpec
sys.modules["__main__"].__spec__ = ModuleSpec("pyspark.daemon", None)
from sparklog.spark.stream.worker_processes import set_aside_loaded_objects
set_aside_loaded_objects()
first = gc.get_freeze_count()
kept = [[] for _ in range(1000)]
set_aside_loaded_objects()
print(first > 1000, gc.get_freeze_count() == first)
"""


def test_garbage_collection_of_other_processes_is_unchanged() -> None:
    assert not is_of_spark()
    before = gc.get_freeze_count()
    set_aside_loaded_objects()
    assert gc.get_freeze_count() == before


def test_spark_processes_freeze_loaded_objects_once() -> None:
    done = subprocess.run([sys.executable, "-c", AS_DAEMON], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"]


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
