"""Objects that Spark sends to executors, and executors without sparklog."""

from __future__ import annotations

import pickle
import subprocess
import sys

from pyspark.cloudpickle import dumps

from sparklog.spark.options import Address, SourceOptions, TopicSubscription
from sparklog.spark.source.reader import SparklogReader
from sparklog.spark.source.rows import read_schema

READER = SparklogReader(SourceOptions(Address("/data/log", {}), TopicSubscription(topics=("a",))), read_schema(False))


def test_an_object_survives_sparks_pickling() -> None:
    found = pickle.loads(dumps(READER))
    assert isinstance(found, SparklogReader)
    assert found.options == READER.options
    assert found.schema == READER.schema


def test_an_executor_without_the_package_reports_it_with_a_remedy() -> None:
    state = dumps(READER)
    script = "import pickle, sys\nsys.modules['sparklog'] = None\npickle.loads(sys.stdin.buffer.read())"
    failed = subprocess.run([sys.executable, "-c", script], input=state, capture_output=True, check=False)
    message = failed.stderr.decode()
    assert "RuntimeError: the Spark executor on" in message
    assert "pip install 'sparklog[spark]'" in message
    assert "--py-files" in message
