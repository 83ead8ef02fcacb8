"""How clients end: out of scope, by an exception, at the end of the interpreter, by fork and by signal.

Promised are: records that a producer accepted are written, records at which a consumer's program failed are read again,
and a child never does its parent's work. The tests use real processes, since only these show what happens at exit.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sparklog.client.reader import LogReader
from sparklog.coordinator import create_cluster, open_cluster

WAIT_SECONDS = 60

BLOCKED = """
import threading
from sparklog.coordinator import open_cluster
from sparklog.store.open import open_store
from sparklog.testing.faulty_store import FaultyStore

opened, blocked = threading.Event(), threading.Event()
def block(step, call):  # once ``blocked`` is set, writes hang
    if blocked.is_set() and call.operation in ("open_output", "put_if_absent", "write", "close"):
        opened.wait()
cluster = open_cluster(FaultyStore(open_store(sys.argv[1]), before=block))
"""


@pytest.fixture
def root(tmp_path: Path) -> str:
    root = str(tmp_path / "cluster")
    create_cluster(root).create_topic("t")
    return root


def run(program: str, root: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a program with the root as its argument; common imports are prepended."""
    program = "import os, signal, sys\nfrom sparklog import Consumer, Producer, TopicPartition\n" + program
    command = [sys.executable, "-c", program, root]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert done.returncode == code, done.stderr
    return done


def values(root: str) -> list[str]:
    cluster = open_cluster(root)
    end = cluster.refresh().partition("t", 0).high_watermark
    with LogReader(cluster) as reader:
        return [(record.value or b"").decode() for record in reader.records("t", 0, 0, end)]


def committed(root: str, group: str = "g") -> list[int]:
    state = open_cluster(root).state.groups.get(group)
    return [] if state is None else [entry.offset for entry in state.offsets.values()]


# -- producers


def test_a_producer_that_goes_out_of_scope_sends_its_record(root: str) -> None:
    done = run(
        """
def notify(number):
    producer = Producer(bootstrap_servers=sys.argv[1])
    producer.send("t", b"%d" % number)
for number in range(5): notify(number)
with Consumer(bootstrap_servers=sys.argv[1]) as consumer: print(consumer.end_offsets([TopicPartition("t", 0)]))
""",
        root,
    )
    assert values(root) == ["0", "1", "2", "3", "4"]
    assert "): 5}" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize("linger_ms", [0, 60_000])
def test_a_future_completes_after_its_producer_went_out_of_scope(root: str, linger_ms: int) -> None:
    program = f"print(Producer(bootstrap_servers=sys.argv[1], linger_ms={linger_ms}).send('t', b'x').get(10).offset)"
    assert run(program, root).stdout == "0\n"


def test_records_of_a_deleted_producer_at_a_slow_storage_are_written_before_exit(root: str) -> None:
    done = run(
        BLOCKED
        + """
producer = Producer(cluster=cluster)
producer.send("t", b"first").get(10)
blocked.set()
future = producer.send("t", b"second")
del producer  # it waits for a while; the rest is written at exit
print(future.is_done)
threading.Timer(0.2, opened.set).start()
""",
        root,
    )
    assert done.stdout == "False\n"
    assert values(root) == ["first", "second"]


def test_unclosed_producers_send_their_records_at_exit(root: str) -> None:
    program = """
producers = [Producer(bootstrap_servers=sys.argv[1], linger_ms=60_000) for _ in range(3)]
for producer in producers: producer.send("t", b"x")
"""
    assert run(program, root).stderr == ""
    assert values(root) == ["x"] * 3


def test_records_that_could_not_be_written_before_exit_are_reported(root: str) -> None:
    done = run(
        BLOCKED
        + """
import sparklog.client.producer.producer
sparklog.client.producer.producer.EXIT_TIMEOUT_SECONDS = 0.3
producer = Producer(cluster=cluster)
producer.send("t", b"first").get(10)
blocked.set()
producer.send("t", b"second")
""",
        root,
    )
    assert "1 uncommitted batches of records" in done.stderr
    assert values(root) == ["first"]


def test_an_exception_in_a_with_block_loses_no_record_of_a_producer(root: str) -> None:
    program = """
with Producer(bootstrap_servers=sys.argv[1], linger_ms=60_000) as producer:
    producer.send("t", b"x")
    1 / 0
"""
    assert "ZeroDivisionError" in run(program, root, code=1).stderr
    assert values(root) == ["x"]


def test_a_process_ended_by_sigterm_has_written_its_acknowledged_records(root: str) -> None:
    done = run(
        """
with Producer(bootstrap_servers=sys.argv[1]) as producer:
    for number in range(5): print(producer.send("t", b"%d" % number).get(10).offset, flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    signal.pause()
""",
        root,
        code=-signal.SIGTERM,
    )
    assert done.stdout.split() == ["0", "1", "2", "3", "4"] == values(root)


# -- consumers

CONSUME = """
with Producer(bootstrap_servers=sys.argv[1]) as producer: [producer.send("t", b"%d" % n) for n in range(3)]
consumer = Consumer("t", bootstrap_servers=sys.argv[1], group_id="g", auto_offset_reset="earliest", **{more})
def poll():
    found = []
    while len(found) < 3: found += sum(consumer.poll(100).values(), [])
    return found
"""


@pytest.mark.parametrize(
    ("way_out", "code", "offsets"),
    [
        ("with consumer: poll()", 0, [3]),
        ("with consumer: poll(); 1 / 0", 1, []),
        ("with consumer: poll(); sys.exit(3)", 3, []),
        ("with consumer: poll(); os.kill(os.getpid(), signal.SIGINT); signal.pause()", -signal.SIGINT, []),
        ("with consumer: poll(); os.kill(os.getpid(), signal.SIGTERM); signal.pause()", -signal.SIGTERM, []),
        ("poll()", 0, []),
        ("poll(); del consumer", 0, []),
        ("poll(); consumer.close()", 0, [3]),
        ("poll(); consumer.close(autocommit=False)", 0, []),
        ("poll(); consumer.unsubscribe()", 0, [3]),
    ],
)
def test_offsets_are_committed_when_a_program_has_processed_its_records(
    root: str, way_out: str, code: int, offsets: list[int]
) -> None:
    """As in kafka-python: at close and unsubscribe, unless an exception ends a with block."""
    run(CONSUME.replace("{more}", "{}") + way_out, root, code)
    assert committed(root) == offsets


@pytest.mark.parametrize("way_out", ["with consumer: poll()", "poll(); consumer.unsubscribe()"])
def test_nothing_is_committed_without_auto_commit(root: str, way_out: str) -> None:
    run(CONSUME.replace("{more}", "{'enable_auto_commit': False}") + way_out, root)
    assert committed(root) == []


def test_a_deleted_consumer_leaves_no_thread(root: str) -> None:
    program = """
import threading
poll()
consumer.offsets_for_times(dict.fromkeys(consumer.assignment(), 0))
def threads(): return [one for one in threading.enumerate() if one.name.startswith("sparklog-consumer")]
left = threads()
del consumer
for one in left: one.join(30)
print(len(left), len(threads()))
"""
    assert run(CONSUME.replace("{more}", "{'heartbeat_interval_ms': 100}") + program, root).stdout == "4 0\n"


# -- forks

FORK = """
import threading
from sparklog.errors import IllegalStateError
consumer = Consumer("t", bootstrap_servers=sys.argv[1], group_id="g", auto_offset_reset="earliest")
producer = Producer(bootstrap_servers=sys.argv[1], linger_ms=60_000)
producer.send("t", b"x").add_callback(print, flush=True)
table_future = producer.send_batch("t", __import__("pyarrow").table({"value": [b"y"]}))
producer.flush()
while not consumer.poll(100): pass
future = producer.send("t", b"z")
child = os.fork()
"""


def test_a_forked_child_cannot_use_the_clients_of_its_parent_and_does_not_do_their_work(root: str) -> None:
    done = run(
        FORK
        + """
if child == 0:
    for name, use in {
        "send": lambda: producer.send("t", b"no"),
        "flush": producer.flush,
        "partitions": lambda: producer.partitions_for("t"),
        "get": lambda: future.get(),
        "connected": producer.bootstrap_connected,
        "poll": lambda: consumer.poll(100),
        "next": lambda: next(consumer),
        "commit": consumer.commit,
        "subscription": consumer.subscription,
        "wakeup": consumer.wakeup,
    }.items():
        try:
            use()
        except IllegalStateError as error:
            assert "process" in str(error), error
        else:
            print(name, "is not refused")
    consumer.close(), producer.close()
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
consumer.close(autocommit=False)
""",
        root,
    )
    assert "refused" not in done.stdout
    assert done.stderr == ""
    assert values(root) == ["x", "y", "z"]
    assert committed(root) == []


@pytest.mark.parametrize("held", ["producer._accumulator.lock", "consumer._read_ahead.lock", "cluster._committing"])
def test_a_forked_child_does_not_wait_for_locks_held_by_a_thread_of_its_parent(root: str, held: str) -> None:
    done = run(
        FORK.replace("child = os.fork()", "")
        + f"""
cluster = producer._coordinator
held, done = threading.Event(), threading.Event()
def hold():
    with {held}:
        held.set(), done.wait()
threading.Thread(target=hold, daemon=True).start()
assert held.wait(20)
child = os.fork()
if child == 0:
    signal.alarm(20)
    for use in (
        lambda: producer.send("t", b"no"), producer.flush, producer.metrics, lambda: future.get(),
        lambda: table_future.add_callback(print), consumer.poll, consumer.wakeup, producer.bootstrap_connected,
    ):
        try: use()
        except IllegalStateError: pass
    consumer.close(), producer.close()
    Producer(bootstrap_servers=sys.argv[1]).send("t", b"child").get(10)
    os._exit(0)
print("child", os.waitpid(child, 0)[1])
done.set()
""",
        root,
    )
    assert "child 0" in done.stdout
    assert values(root) == ["x", "y", "child", "z"]


def test_a_forked_child_can_open_clusters_while_a_thread_of_its_parent_is_opening_one(root: str) -> None:
    """The parent's thread hangs while opening: the server accepts connections and never answers."""
    done = run(
        """
import socket, threading
server = socket.create_server(("127.0.0.1", 0))
keys = {"endpoint_url": f"http://127.0.0.1:{server.getsockname()[1]}", "key": "k", "secret": "s"}
def open_it():
    Producer(bootstrap_servers="s3://stuck/log", storage_options=keys)
threading.Thread(target=open_it, daemon=True).start()
server.accept()
with Producer(bootstrap_servers=sys.argv[1]) as producer: producer.send("t", b"parent").get(10)
child = os.fork()
if child == 0:
    signal.alarm(20)
    with Producer(bootstrap_servers=sys.argv[1]) as producer: producer.send("t", b"child").get(10)
    with Consumer("t", bootstrap_servers=sys.argv[1], group_id="g", auto_offset_reset="earliest") as consumer:
        while not consumer.poll(100): pass
    os._exit(0)
print("child", os.waitpid(child, 0)[1])
os._exit(0)
""",
        root,
    )
    assert "child 0" in done.stdout
    assert values(root) == ["parent", "child"]
