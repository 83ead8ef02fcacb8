"""The options of a SQL table, carried through Spark's catalog.

Spark 4.2 shows a Python data source the options of ``CREATE TABLE ... USING sparklog OPTIONS (...)`` once, when the
table is created; queries of the table make the source again with no options at all. What Spark does keep is the schema
with the metadata of its columns, and it hands those to the reader of a SELECT and to the writer of an INSERT. So the
options travel as metadata of every column, with the column's name in the log: ``ALTER TABLE`` may rename and drop
columns. Columns that it adds are not in the log: they are null, and an INSERT cannot fill them. Spark does not ask the
source about a table with a list of columns, so nothing can travel with one; option ``columns`` chooses them instead.

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
from sparklog.spark.source.rows import READ_TYPES

METADATA_KEY = "sparklog.options"
COLUMN_KEY = "sparklog.column"
NOT_IN_LOG = ""
"""Stands for a column of a table that a log does not have."""
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
    text = json.dumps(kept, sort_keys=True)
    return StructType(
        [
            StructField(one.name, one.dataType, one.nullable, {METADATA_KEY: text, COLUMN_KEY: one.name})
            for one in schema.fields
        ]
    )


def effective_options(options: Mapping[str, str], schema: StructType) -> Options:
    """The given options on top of the table's, if the schema carries any and the given ones name no cluster.

    Raises InvalidOptionError where neither names a cluster, since Spark has forgotten which.
    """
    given, text = Options(options), _carried(options, schema)
    if text is not None:
        return Options({**_decoded(text), **given})
    if not _names_cluster(given):
        raise InvalidOptionError(
            "which cluster? Give its root, a URL or a folder, as option kafka.bootstrap.servers or bootstrap.servers, "
            "or to load() and save(). Of a table Spark forgets the options if it was created with a list of columns, "
            "or given new ones by REPLACE COLUMNS: drop it (its topic stays), and create it without the list, with "
            "option columns 'key,value' if it should have those alone",
            option=BOOTSTRAP[0],
        )
    return given


def table_columns(options: Mapping[str, str], schema: StructType) -> tuple[str, ...] | None:
    """The names that the columns of a table have in the log; None where no table is read or written."""
    if _carried(options, schema) is None:
        return None
    known = {name.lower(): name for name in READ_TYPES}
    return tuple(known.get(str(one.metadata.get(COLUMN_KEY, one.name)).lower(), NOT_IN_LOG) for one in schema.fields)


def _names_cluster(given: Options) -> bool:
    return any(given.text(name) for name in (*BOOTSTRAP, "path"))


def _carried(options: Mapping[str, str], schema: StructType) -> str | None:
    """The table's options as they travel; None where the given ones name a cluster themselves."""
    if _names_cluster(Options(options)):
        return None
    found = (field.metadata.get(METADATA_KEY) for field in schema.fields)
    return next((text for text in found if isinstance(text, str)), None)


def _decoded(text: str) -> dict[str, str]:
    """The options in a column's metadata; none where it is not what ``with_table_options`` wrote."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {str(name): value for name, value in found.items() if isinstance(value, str)}
