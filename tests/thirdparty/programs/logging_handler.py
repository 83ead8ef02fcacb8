"""A logging handler that sends what is logged as JSON."""

import json
import logging

from kafka import KafkaConsumer
from kafka_logger.handlers import KafkaLoggingHandler

handler = KafkaLoggingHandler(
    "localhost:9092", "logs", security_protocol="PLAINTEXT", kafka_producer_args={"retries": 3}, flush_interval=60
)
logger = logging.getLogger("orders")
logger.addHandler(handler)
logger.warning("low on %s", "stock")
logger.error("out of stock")
handler.flush()
consumer = KafkaConsumer(
    "logs", bootstrap_servers="localhost:9092", auto_offset_reset="earliest", value_deserializer=json.loads
)
records = []
while len(records) < 2:
    records.extend(record.value for batch in consumer.poll(1000).values() for record in batch)
consumer.close()
print(json.dumps([[record["levelname"], record["message"], record["name"]] for record in records]))
