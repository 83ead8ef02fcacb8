"""OpenTelemetry's instrumentation of kafka-python: a span for each send and receive, in one trace."""

import json

from opentelemetry.instrumentation.kafka import KafkaInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
KafkaInstrumentor().instrument(tracer_provider=provider)

from kafka import KafkaConsumer, KafkaProducer  # noqa: E402 # as its users import it: after instrumenting

producer = KafkaProducer(bootstrap_servers=["localhost:9092"])
producer.send("orders", b"value", headers=[("mine", b"1")])
producer.close()
consumer = KafkaConsumer("orders", bootstrap_servers=["localhost:9092"], auto_offset_reset="earliest")
for record in consumer:
    names = [name for name, _ in record.headers]
    break
consumer.close()
spans = exporter.get_finished_spans()
print(
    json.dumps(
        {
            "spans": [span.name for span in spans],
            "one trace": len({span.context.trace_id for span in spans}) == 1,
            "headers": names,
            "destination": spans[0].attributes["messaging.destination"],
            "url": json.loads(spans[0].attributes["messaging.url"]),
            "partition": spans[0].attributes.get("messaging.kafka.partition"),
        }
    )
)
