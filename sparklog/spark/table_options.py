"""The options of a SQL table, carried through Spark's catalog.

Spark 4.2 shows a Python data source the options of ``CREATE TABLE ... USING sparklog OPTIONS (...)`` once, when the
table is created; queries of the table make the source again with no options at all. What Spark does keep is the schema
with the metadata of its columns, and it hands those to the reader of a SELECT and to the writer of an INSERT. So the
options travel as metadata of the first column.

Rules: options given with a query (``SELECT ... FROM t WITH (...)``) come before those of the table. Secrets do not
travel: column metadata is shown to everybody who reads the schema, so credentials belong into the environment.
Not for: DataFrames and views, whose options Spark passes on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from pyspark.sql.types import StructField, StructType

from sparklog.errors import InvalidOptionError
from sparklog.spark.options import BOOTSTRAP, CATALOG_OPTIONS, STORAGE_PREFIX, Options

METADATA_KEY = "sparklog.options"
_SECRET = re.compile(r"secret|password|token|access.?key|credential|private", re.IGNORECASE)


def with_table_options(schema: StructType, options: Options) -> StructType:
    """The schema as the catalog shall keep it. Raises InvalidOptionError for options that are secrets."""
    kept = {
        name: value for name, value in options.items() if name not in CATALOG_OPTIONS and not name.startswith("option.")
    }
    secret = next((name for name in kept if name.startswith(STORAGE_PREFIX) and _SECRET.search(name)), None)
    if secret is not None:
        raise InvalidOptionError(
            f"option {secret} of a table would be shown to everybody who reads its schema; leave it out and put the "
            "credentials into the environment of driver and executors",
            option=secret,
        )
    if any(name in kept for name in BOOTSTRAP):
        kept.pop("path", None)  # the folder that Spark gave the table, not the cluster
    first = schema.fields[0]
    metadata = {**first.metadata, METADATA_KEY: json.dumps(kept, sort_keys=True)}
    return StructType([StructField(first.name, first.dataType, first.nullable, metadata), *schema.fields[1:]])


def effective_options(options: Mapping[str, str], schema: StructType) -> Options:
    """The given options on top of the table's, if the schema carries any and the given ones name no cluster."""
    given = Options(options)
    if any(given.text(name) for name in (*BOOTSTRAP, "path")):
        return given
    for field in schema.fields:
        text = field.metadata.get(METADATA_KEY)
        if isinstance(text, str):
            return Options({**_decoded(text), **given})
    return given


def _decoded(text: str) -> dict[str, str]:
    """The options in a column's metadata; none where it is not what ``with_table_options`` wrote."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {str(name): value for name, value in found.items() if isinstance(value, str)}
