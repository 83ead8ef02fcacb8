"""The examples in the docstrings of the functions that need Spark run."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from scripts.reference import SPARK_FUNCTIONS
from tests.unit.test_examples import examples, run


@pytest.mark.parametrize("name", SPARK_FUNCTIONS)
def test_the_example_of_a_function_runs(spark: SparkSession, name: str, tmp_path: Path) -> None:
    found = examples(name)
    assert found
    assert run(found, {"spark": spark}, tmp_path) == ""
