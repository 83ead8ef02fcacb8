"""Run the docstring examples of the functions that need Spark."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from scripts.reference import SPARK_FUNCTIONS
from tests.cluster.test_examples import examples, run


class BytesChecker(doctest.OutputChecker):
    """Takes a bytearray, as which Spark 4.0 returns binary values, for bytes."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return super().check_output(want, re.sub(r"bytearray\((b'[^']*')\)", r"\1", got), optionflags)


@pytest.mark.parametrize("name", SPARK_FUNCTIONS)
def test_the_examples_of_a_function_run(spark: SparkSession, name: str, tmp_path: Path) -> None:
    sources = examples(name)
    assert sources
    try:
        assert run(sources, {"spark": spark}, tmp_path, BytesChecker()) == ""
    finally:
        spark.catalog.dropTempView("orders")  # other tests share the session
