"""sparklog: a distributed log with Kafka's semantics on Spark and shared storage.

    import sparklog

    cluster = sparklog.create_cluster("/data/log")                  # or open_cluster
    cluster.create_topic("flights", partitions=4)

    producer = sparklog.Producer(bootstrap_servers="/data/log")     # Consumer, AdminClient: as in kafka-python,
    producer.send("flights", value=b"...").get()                    # whose names KafkaProducer ... work too

    sparklog.write(df, "/data/log", topic="flights")                # these need Spark: pip install 'sparklog[spark]'
    sparklog.read(spark, "/data/log", subscribe="flights")

Rules: importing this module takes a few milliseconds and loads only the standard library. The names in ``__all__`` are
imported from their own modules when they are first used, so that a process that only reads errors never loads Spark.
Without Spark every name can still be imported; calling one that needs Spark raises an error that says what is missing.

Not for: definitions. Names are re-exported lazily from their own modules.
"""

from __future__ import annotations

import importlib

__version__ = "0.3.0"

TYPE_CHECKING = False  # type checkers know this name; importing typing for it would cost more than all the rest
if TYPE_CHECKING:
    from sparklog import errors, kafka, plot
    from sparklog.client.admin.client import AdminClient
    from sparklog.client.admin.client import AdminClient as KafkaAdminClient
    from sparklog.client.admin.types import ConfigResource, ConfigResourceType, NewPartitions, NewTopic, OffsetSpec
    from sparklog.client.cluster import Cluster, create_cluster, open_cluster
    from sparklog.client.consumer.consumer import Consumer
    from sparklog.client.consumer.consumer import Consumer as KafkaConsumer
    from sparklog.client.consumer.records import ConsumerRecord
    from sparklog.client.consumer.subscription_state import ConsumerRebalanceListener
    from sparklog.client.producer.futures import RecordMetadata
    from sparklog.client.producer.producer import Producer
    from sparklog.client.producer.producer import Producer as KafkaProducer
    from sparklog.client.scan.scan import Scan, scan
    from sparklog.client.scan.snapshot import Snapshot, snapshot
    from sparklog.client.system import System, system
    from sparklog.errors import SparklogError
    from sparklog.spark.api import read, register, write
    from sparklog.spark.history.table import create_view, table
    from sparklog.spark.stream.foreach_batch import write_batch
    from sparklog.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

__all__ = [
    "AdminClient",
    "Cluster",
    "ConfigResource",
    "ConfigResourceType",
    "Consumer",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "KafkaAdminClient",
    "KafkaConsumer",
    "KafkaProducer",
    "NewPartitions",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetSpec",
    "Producer",
    "RecordMetadata",
    "Scan",
    "Snapshot",
    "SparklogError",
    "System",
    "TopicPartition",
    "__version__",
    "create_cluster",
    "create_view",
    "errors",
    "kafka",
    "open_cluster",
    "plot",
    "read",
    "register",
    "scan",
    "snapshot",
    "system",
    "table",
    "write",
    "write_batch",
]

# name -> (module, attribute); an attribute of None means the module itself
_LAZY: dict[str, tuple[str, str | None]] = {
    "AdminClient": ("sparklog.client.admin.client", "AdminClient"),
    "Cluster": ("sparklog.client.cluster", "Cluster"),
    "ConfigResource": ("sparklog.client.admin.types", "ConfigResource"),
    "ConfigResourceType": ("sparklog.client.admin.types", "ConfigResourceType"),
    "Consumer": ("sparklog.client.consumer.consumer", "Consumer"),
    "ConsumerRebalanceListener": ("sparklog.client.consumer.subscription_state", "ConsumerRebalanceListener"),
    "ConsumerRecord": ("sparklog.client.consumer.records", "ConsumerRecord"),
    "KafkaAdminClient": ("sparklog.client.admin.client", "AdminClient"),
    "KafkaConsumer": ("sparklog.client.consumer.consumer", "Consumer"),
    "KafkaProducer": ("sparklog.client.producer.producer", "Producer"),
    "NewPartitions": ("sparklog.client.admin.types", "NewPartitions"),
    "NewTopic": ("sparklog.client.admin.types", "NewTopic"),
    "OffsetAndMetadata": ("sparklog.types", "OffsetAndMetadata"),
    "OffsetAndTimestamp": ("sparklog.types", "OffsetAndTimestamp"),
    "OffsetSpec": ("sparklog.client.admin.types", "OffsetSpec"),
    "Producer": ("sparklog.client.producer.producer", "Producer"),
    "RecordMetadata": ("sparklog.client.producer.futures", "RecordMetadata"),
    "Scan": ("sparklog.client.scan.scan", "Scan"),
    "Snapshot": ("sparklog.client.scan.snapshot", "Snapshot"),
    "System": ("sparklog.client.system", "System"),
    "TopicPartition": ("sparklog.types", "TopicPartition"),
    "SparklogError": ("sparklog.errors", "SparklogError"),
    "create_cluster": ("sparklog.client.cluster", "create_cluster"),
    "create_view": ("sparklog.spark.history.table", "create_view"),
    "errors": ("sparklog.errors", None),
    "kafka": ("sparklog.kafka", None),
    "open_cluster": ("sparklog.client.cluster", "open_cluster"),
    "plot": ("sparklog.plot", None),
    "read": ("sparklog.spark.api", "read"),
    "register": ("sparklog.spark.api", "register"),
    "scan": ("sparklog.client.scan.scan", "scan"),
    "snapshot": ("sparklog.client.scan.snapshot", "snapshot"),
    "system": ("sparklog.client.system", "system"),
    "table": ("sparklog.spark.history.table", "table"),
    "write": ("sparklog.spark.api", "write"),
    "write_batch": ("sparklog.spark.stream.foreach_batch", "write_batch"),
}


_SPARK_PACKAGES = frozenset({"pyspark", "py4j", "pandas", "numpy"})
"""Packages that the extra ``spark`` installs."""

_NOT_OURS = frozenset({"TYPE_CHECKING", "annotations", "importlib"})
"""Names in this module that are hidden from completion of ``sparklog.``."""

if not TYPE_CHECKING:  # else every misspelt name would pass a type checker

    def __getattr__(name):
        try:
            module_name, attribute = _LAZY[name]
        except KeyError:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if not module_name.startswith("sparklog.spark.") or missing not in _SPARK_PACKAGES:
                raise
            return _function_without_spark(name, missing)
        value = module if attribute is None else getattr(module, attribute)
        globals()[name] = value  # later uses do not call __getattr__
        return value


def _function_without_spark(name: str, missing: str) -> object:
    """Return a function that raises when it is called, in place of a name that needs Spark, so that ``help`` and
    ``import *`` work without Spark."""

    def needs_spark(*_: object, **__: object) -> None:
        raise ModuleNotFoundError(
            f"sparklog.{name} needs Spark, and this Python has no {missing}: pip install 'sparklog[spark]'",
            name=missing,
        )

    needs_spark.__name__ = needs_spark.__qualname__ = name
    needs_spark.__doc__ = "Needs Spark, which is not installed: pip install 'sparklog[spark]'."
    return needs_spark


def __dir__() -> list[str]:
    private = {name for name in globals() if name.startswith("_") and not name.endswith("__")}
    return sorted({*globals(), *__all__} - private - _NOT_OURS)
