"""Carry the options of a SQL table through Spark's catalog.

Spark passes a Python data source the options of ``CREATE TABLE ... USING sparklog OPTIONS (...)`` only when the
table is created; queries of the table create the source with no options at all. Spark does keep the schema with the
metadata of its columns, and passes it to the reader of a SELECT and to the writer of an INSERT. So the options are
stored in the metadata of every column, with the column's name in the log: ``ALTER TABLE`` may rename and drop columns.
Columns that it adds are not in the log: they are null, and an INSERT cannot fill them. Spark does not ask the source
about a table that is created with a list of columns, so such a table has no options; option ``columns`` selects columns
instead.

Rules: options given with a query (``SELECT ... FROM t WITH (...)``) override those of the table. Secrets are refused:
everyone who reads the schema sees column metadata, so credentials belong in the environment.
Not for: DataFrames and views, whose options Spark passes on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from pyspark.sql.types import StructField, StructType

from sparklog.errors import InvalidOptionError
from sparklog.spark.options import BOOTSTRAP, CATALOG_OPTIONS, STORAGE_PREFIX, Options
from sparklog.spark.source.rows import BY_LOWER_NAME

METADATA_KEY = "sparklog.options"
COLUMN_KEY = "sparklog.column"
NOT_IN_LOG = ""
"""Marks a column of a table that the log does not have."""
_SECRET = re.compile(r"secret|password|token|access.?key|credential|private", re.IGNORECASE)


def with_table_options(schema: StructType, options: Options) -> StructType:
    """Return the schema for the catalog, with the options in it. Raises InvalidOptionError for secrets."""
    kept = {
        name: value for name, value in options.items() if name not in CATALOG_OPTIONS and not name.startswith("option.")
    }
    secret = next((name for name in kept if name.startswith(STORAGE_PREFIX) and _SECRET.search(name)), None)
    if secret is not None:
        raise InvalidOptionError(
            f"option {secret} of a table would be visible to everyone who reads its schema; leave it out and put the "
            "credentials into the environment of driver and executors",
            option=secret,
        )
    if any(name in kept for name in BOOTSTRAP):
        kept.pop("path", None)  # the folder that Spark gave the table, not the cluster
    text = json.dumps(kept, sort_keys=True)
    return StructType(
        [
            StructField(column.name, column.dataType, column.nullable, {METADATA_KEY: text, COLUMN_KEY: column.name})
            for column in schema.fields
        ]
    )


def effective_options(options: Mapping[str, str], schema: StructType) -> Options:
    """Return the given options, over those of the table if the schema carries any and the given ones name no cluster.

    Raises InvalidOptionError if neither names a cluster, as when Spark has dropped the table's options.
    """
    given, text = Options(options), _read_metadata(options, schema)
    if text is not None:
        return Options({**_decode(text), **given})
    if not _names_cluster(given):
        raise InvalidOptionError(
            "no cluster given: set its root, a URL or a folder, as option kafka.bootstrap.servers or "
            "bootstrap.servers, or pass it to load() or save(). Spark drops the options of a table that is created "
            "with a list of columns, or changed by REPLACE COLUMNS: drop the table (its topic stays), and create it "
            "without the list; to select columns, use an option such as columns 'key,value', and ALTER TABLE to rename "
            "them, drop some or add others, which keeps the options",
            option=BOOTSTRAP[0],
        )
    return given


def table_columns(options: Mapping[str, str], schema: StructType) -> tuple[str, ...] | None:
    """Return the names in the log of a table's columns; None if no table is read or written."""
    if _read_metadata(options, schema) is None:
        return None
    names = (str(column.metadata.get(COLUMN_KEY, column.name)) for column in schema.fields)
    return tuple(BY_LOWER_NAME.get(name.lower(), NOT_IN_LOG) for name in names)


def _names_cluster(given: Options) -> bool:
    return any(given.text(name) for name in (*BOOTSTRAP, "path"))


def _read_metadata(options: Mapping[str, str], schema: StructType) -> str | None:
    """Return the table's encoded options; None if the given options name a cluster themselves."""
    if _names_cluster(Options(options)):
        return None
    texts = (field.metadata.get(METADATA_KEY) for field in schema.fields)
    return next((text for text in texts if isinstance(text, str)), None)


def _decode(text: str) -> dict[str, str]:
    """Return the options in a column's metadata; empty if ``with_table_options`` did not write it."""
    try:
        options = json.loads(text)
    except ValueError:
        return {}
    if not isinstance(options, dict):
        return {}
    return {str(name): value for name, value in options.items() if isinstance(value, str)}
