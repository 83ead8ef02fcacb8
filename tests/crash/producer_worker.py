"""Produce until killed or until the time is up, and print what was acknowledged.

    python producer_worker.py records|transactions ROOT NAME SECONDS

Each record's value is ``NAME-number``. In mode ``records`` one goes to topic t; in mode ``transactions`` each number is
a transaction of one record to t and one to u. One line per acknowledged number: number, offset in t.
"""

from __future__ import annotations

import sys
import time

from sparklog.client.producer.futures import RecordMetadata
from sparklog.client.producer.producer import Producer


def records(root: str, name: str, until: float) -> None:
    def acknowledged(number: int, metadata: RecordMetadata) -> None:
        print(number, metadata.offset, flush=True)

    number = 0
    with Producer(bootstrap_servers=root) as producer:
        while time.monotonic() < until:
            producer.send("t", b"%s-%d" % (name.encode(), number)).add_callback(acknowledged, number)
            number += 1
            if number % 7 == 0:
                producer.flush()


def transactions(root: str, name: str, until: float) -> None:
    number = 0
    with Producer(bootstrap_servers=root, transactional_id=name) as producer:
        producer.init_transactions()
        while time.monotonic() < until:
            producer.begin_transaction()
            value = b"%s-%d" % (name.encode(), number)
            future = producer.send("t", value)
            if number % 2:
                producer.flush()
            producer.send("u", value)
            producer.commit_transaction()
            print(number, future.get(0).offset, flush=True)
            number += 1


if __name__ == "__main__":
    mode = {"records": records, "transactions": transactions}[sys.argv[1]]
    mode(sys.argv[2], sys.argv[3], time.monotonic() + float(sys.argv[4]))
