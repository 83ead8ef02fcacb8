"""sparklog: a distributed log with Kafka's semantics on Spark and shared storage.

    import sparklog

    sparklog.register(spark)
    sparklog.write(df, "/data/log", topic="flights")
    sparklog.read(spark, "/data/log", subscribe="flights")

    producer = sparklog.Producer(bootstrap_servers="/data/log")     # Consumer, AdminClient: as in kafka-python,
    producer.send("flights", value=b"...").get()                    # whose names KafkaProducer ... work too

Rules: importing this module costs a few milliseconds and nothing but the standard library. The names in ``__all__`` are
imported from where they live when they are first used, so that a process that only reads errors never loads Spark.

Not for: code. Whatever is exported here is defined on its own floor.
"""

from __future__ import annotations

import importlib

__version__ = "0.2.0"

TYPE_CHECKING = False  # as type checkers take it; importing typing for it would cost more than all the rest
if TYPE_CHECKING:
    from sparklog import errors, kafka
    from sparklog.client.admin import AdminClient
    from sparklog.client.admin import AdminClient as KafkaAdminClient
    from sparklog.client.admin_types import ConfigResource, ConfigResourceType, NewPartitions, NewTopic, OffsetSpec
    from sparklog.client.consumer import Consumer
    from sparklog.client.consumer import Consumer as KafkaConsumer
    from sparklog.client.consumer_records import ConsumerRecord
    from sparklog.client.futures import RecordMetadata
    from sparklog.client.producer import Producer
    from sparklog.client.producer import Producer as KafkaProducer
    from sparklog.client.scan import Scan, scan
    from sparklog.client.subscription import ConsumerRebalanceListener
    from sparklog.errors import SparklogError
    from sparklog.spark.api import read, register, write
    from sparklog.spark.stream_batch import write_batch
    from sparklog.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

__all__ = [
    "AdminClient",
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
    "SparklogError",
    "TopicPartition",
    "__version__",
    "errors",
    "kafka",
    "read",
    "register",
    "scan",
    "write",
    "write_batch",
]

# name -> (module, attribute); an attribute of None means the module itself
_LAZY: dict[str, tuple[str, str | None]] = {
    "AdminClient": ("sparklog.client.admin", "AdminClient"),
    "ConfigResource": ("sparklog.client.admin_types", "ConfigResource"),
    "ConfigResourceType": ("sparklog.client.admin_types", "ConfigResourceType"),
    "Consumer": ("sparklog.client.consumer", "Consumer"),
    "ConsumerRebalanceListener": ("sparklog.client.subscription", "ConsumerRebalanceListener"),
    "ConsumerRecord": ("sparklog.client.consumer_records", "ConsumerRecord"),
    "KafkaAdminClient": ("sparklog.client.admin", "AdminClient"),
    "KafkaConsumer": ("sparklog.client.consumer", "Consumer"),
    "KafkaProducer": ("sparklog.client.producer", "Producer"),
    "NewPartitions": ("sparklog.client.admin_types", "NewPartitions"),
    "NewTopic": ("sparklog.client.admin_types", "NewTopic"),
    "OffsetAndMetadata": ("sparklog.types", "OffsetAndMetadata"),
    "OffsetAndTimestamp": ("sparklog.types", "OffsetAndTimestamp"),
    "OffsetSpec": ("sparklog.client.admin_types", "OffsetSpec"),
    "Producer": ("sparklog.client.producer", "Producer"),
    "RecordMetadata": ("sparklog.client.futures", "RecordMetadata"),
    "Scan": ("sparklog.client.scan", "Scan"),
    "TopicPartition": ("sparklog.types", "TopicPartition"),
    "SparklogError": ("sparklog.errors", "SparklogError"),
    "errors": ("sparklog.errors", None),
    "kafka": ("sparklog.kafka", None),
    "read": ("sparklog.spark.api", "read"),
    "register": ("sparklog.spark.api", "register"),
    "scan": ("sparklog.client.scan", "scan"),
    "write": ("sparklog.spark.api", "write"),
    "write_batch": ("sparklog.spark.stream_batch", "write_batch"),
}


if not TYPE_CHECKING:  # or else every misspelt name would pass a type checker

    def __getattr__(name):
        try:
            module_name, attribute = _LAZY[name]
        except KeyError:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
        module = importlib.import_module(module_name)
        value = module if attribute is None else getattr(module, attribute)
        globals()[name] = value  # the next use does not come here
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
