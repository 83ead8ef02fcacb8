"""kq: jobs in a topic, which a worker takes and runs."""

import json

from kafka import KafkaConsumer, KafkaProducer
from kq import Queue, Worker

results = []


def done(status, message, job, result, exception, stacktrace):
    results.append([status, result, message.topic, message.offset])


producer = KafkaProducer(bootstrap_servers="localhost:9092")
queue = Queue(topic="jobs", producer=producer)
queue.enqueue(sum, [1, 2, 3])
queue.using(key=b"k").enqueue(len, "four")
consumer = KafkaConsumer(bootstrap_servers="localhost:9092", group_id="workers", auto_offset_reset="earliest")
worker = Worker(topic="jobs", consumer=consumer, callback=done)
worker.start(max_messages=2)
consumer.close()
print(json.dumps({"hosts": [queue.hosts, worker.hosts], "results": sorted(results, key=lambda item: item[1])}))
