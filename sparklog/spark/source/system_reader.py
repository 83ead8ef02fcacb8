"""System tables for Spark: ``spark.read.format("sparklog").option("system", "lag")``, and views with this option.

    spark.read.format("sparklog").options(system="lag", group="billing", since="6h").load("/data/log")

Option ``system`` names the table; ``topic``, ``partition``, ``group``, ``since``, ``until`` and ``step`` are the
arguments of ``sparklog.system(root).read``. One task reads the table, and each query reads it again.

Rules: other options of reads and writes are refused, since they would have no effect.
Not for: the tables themselves (``sparklog.monitoring``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from sparklog.clock import SystemClock
from sparklog.coordinator import shared_cluster
from sparklog.errors import InvalidConfigurationError, InvalidOptionError
from sparklog.errors.suggestions import did_you_mean
from sparklog.monitoring.arguments import check_table, parse_selection
from sparklog.monitoring.schemas import TABLES
from sparklog.monitoring.system_tables import RowSelection, SystemTables
from sparklog.spark.options import BOOTSTRAP, STORAGE_PREFIX, SYSTEM, SYSTEM_OPTIONS, Address, Options, address
from sparklog.spark.picklable import Picklable
from sparklog.spark.versions.api import arrow_schema


@dataclass(frozen=True)
class SystemOptions:
    """The checked options of a read of a system table; ``arguments`` are those of ``parse_selection``."""

    address: Address
    table: str
    arguments: dict[str, str]
    partition: int | None
    orphans: bool = False

    def selection(self, now_ms: int) -> RowSelection:
        return parse_selection(self.table, now_ms, partition=self.partition, orphans=self.orphans, **self.arguments)


def system_options(options: Options) -> SystemOptions:
    """Check the options of a read of a system table. Raises InvalidOptionError."""
    if options.is_table:
        raise InvalidOptionError(
            "option system is for reads and temporary views: use CREATE TEMPORARY VIEW … USING sparklog OPTIONS (…)",
            option=SYSTEM,
        )
    allowed = (SYSTEM, *SYSTEM_OPTIONS, *BOOTSTRAP, "path")
    for name in options:
        if name not in allowed and not name.startswith(STORAGE_PREFIX):
            raise InvalidOptionError(
                f"option {name} does not apply to a system table{did_you_mean(name, allowed)}; its options are "
                f"{', '.join(allowed)} and {STORAGE_PREFIX}NAME",
                option=name,
            )
    texts = (name for name in SYSTEM_OPTIONS if name not in ("partition", "orphans"))
    arguments = {name: options.text(name) for name in texts if name in options}
    try:
        table = check_table(options.text(SYSTEM))
        partition = options.integer("partition", 0, 2**31 - 1)
        checked = SystemOptions(address(options), table, arguments, partition, options.boolean("orphans", False))
        checked.selection(SystemClock().now_ms())
    except InvalidConfigurationError as error:
        raise InvalidOptionError(error.message, option=SYSTEM if error.config == "table" else error.config) from None
    return checked


def system_schema(table: str) -> StructType:
    """Return the columns of a system table."""
    return from_arrow_schema(TABLES[table].schema)


class SystemTableReader(Picklable, DataSourceReader):
    """Reads the columns of a system table that are in the schema. Not thread-safe."""

    def __init__(self, options: SystemOptions, schema: StructType) -> None:
        columns = {field.name.lower(): field for field in system_schema(options.table).fields}
        for field in schema.fields:
            known = columns.get(field.name.lower())
            if known is None or known.dataType != field.dataType:
                kind = field.dataType.simpleString()
                raise InvalidOptionError(
                    f"system table {options.table} has no column {field.name} {kind}; its columns are "
                    f"{', '.join(f'{each.name} {each.dataType.simpleString()}' for each in columns.values())}"
                )
        self.options = options
        self.schema = schema
        self.columns = [columns[field.name.lower()].name for field in schema.fields]

    def partitions(self) -> list[InputPartition]:
        """Return the one partition: a table is of one moment."""
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows. Errors as ``SystemTables.read``."""
        coordinator = shared_cluster(*self.options.address)
        selection = self.options.selection(coordinator.log.clock.now_ms())
        table = SystemTables(coordinator).read(self.options.table, selection).select(self.columns)
        yield from table.rename_columns(self.schema.names).cast(arrow_schema(self.schema)).to_batches()
