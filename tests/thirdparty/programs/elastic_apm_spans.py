"""elastic-apm's instrumentation: a span for each send and poll, a transaction for each record."""

import json

import elasticapm
from elasticapm import Client
from elasticapm.transport.base import Transport

sent = []


class Kept(Transport):
    def queue(self, event_type, data, flush=False):
        sent.append((event_type, data))

    def send(self, data, forced_flush=False):
        raise AssertionError("nothing is sent")


from kafka import KafkaConsumer, KafkaProducer  # noqa: E402

client = Client(
    service_name="orders",
    transport_class="__main__.Kept",
    central_config=False,
    metrics_interval="0ms",
    cloud_provider="none",
)
elasticapm.instrument()
client.begin_transaction("test")
producer = KafkaProducer(bootstrap_servers="localhost:9092")
producer.send("orders", key=b"key", value=b"value")
producer.close()
client.end_transaction("produce")

consumer = KafkaConsumer(
    "orders", bootstrap_servers="localhost:9092", auto_offset_reset="earliest", consumer_timeout_ms=2000
)
client.begin_transaction("test")
polled = sum(len(records) for records in consumer.poll(2000).values())
client.end_transaction("poll")
consumer.seek_to_beginning()
for record in consumer:
    headers = [name for name, _ in record.headers]
    break
client.end_transaction("messaging")
consumer.close()
client.close()
spans = [data for kind, data in sent if kind == "span"]
print(
    json.dumps(
        {
            "spans": sorted(span["name"] for span in spans),
            "transactions": [data["name"] for kind, data in sent if kind == "transaction"],
            "polled": polled,
            "headers": headers,
        }
    )
)
