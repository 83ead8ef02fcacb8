"""Run the docstring examples of the functions that need Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from scripts.reference import SPARK_FUNCTIONS
from tests.integration.sparks import needs_bytes
from tests.unit.test_examples import examples, run


@needs_bytes
@pytest.mark.parametrize("name", SPARK_FUNCTIONS)
def test_the_examples_of_a_function_run(spark: SparkSession, name: str, tmp_path: Path) -> None:
    sources = examples(name)
    assert sources
    try:
        assert run(sources, {"spark": spark}, tmp_path) == ""
    finally:
        spark.catalog.dropTempView("orders")  # other tests share the session
