"""jobs/produce.py whose driver is killed just after its commit, in its first attempt; with the arguments of that."""

import os
import runpy
import signal
import time
from typing import Any

from pyspark.sql import SparkSession

import sparklog

write = sparklog.write


def write_and_die(*arguments: Any, **options: Any) -> None:
    write(*arguments, **options)
    spark = SparkSession.Builder().getOrCreate()
    if spark.sparkContext._jsc.sc().applicationAttemptId().get() == "1":
        os.kill(os.getppid(), signal.SIGKILL)  # the ApplicationMaster
        time.sleep(60)


sparklog.write = write_and_die
runpy.run_module("sparklog.jobs.produce", run_name="__main__")
