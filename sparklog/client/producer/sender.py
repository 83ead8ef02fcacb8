"""The producer's thread: takes what has gathered, writes a file for each topic, and commits it all at once.

While a commit is under way, records gather for the next one. One commit is under way at a time, so that the order of a
partition's records is the order in which they were sent.

Rules: every try of the same records has the same sequences, so that what a lost answer hid is not written twice. A
failure that may pass is tried again until ``delivery_timeout_ms``; one that will not pass fails the records it is
about, and the others go on. What is on the wrong brokers is written again, to those that the newest state names; while
there are too few of them, the partition is held back and the others go on (``in_flight``). After
records were given up on with nobody knowing whether they are in the log, the producer goes on under a new producer id:
whichever it was, what follows is not taken for a repetition or a gap. So it does after the log was read on from a
checkpoint that nothing links to what was read before (``CommitLog.unlinked_jumps``): where the root was restored, the
id and its sequences may be another producer's. The runs of one file are committed in one commit:
between two of them the first may leave the log again, and take the file with it.

Not for: transactions (``transactions``).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from sparklog.client.producer.batch_files import NO_IDENTITY, PartitionRun, write_files
from sparklog.client.producer.config import ProducerConfig
from sparklog.client.producer.in_flight import PartitionBatches, RetryQueue
from sparklog.client.producer.metrics import ProducerMetrics
from sparklog.client.producer.record_accumulator import Accumulator, Drained, PendingBatch
from sparklog.client.producer.topic_metadata import TopicMetadata, Topics
from sparklog.coordinator import Coordinator
from sparklog.errors import (
    CommitConflictError,
    FencedError,
    IndeterminateCommitError,
    KafkaTimeoutError,
    SparklogError,
    StorageError,
    StoragePermissionError,
    UnknownProducerIdError,
    UnknownTopicOrPartitionError,
    UnlinkedHistoryError,
    WriteRefusedError,
)
from sparklog.protocol.decide.acks import ACKS_ALL
from sparklog.protocol.decide.append import UNKNOWN_OFFSET, AppendRequest, AppendResult, PartitionAppend
from sparklog.protocol.decide.producers import ProducerIdentity
from sparklog.types import TopicPartition

logger = logging.getLogger(__name__)

SEQUENCES = 2**31
"""Sequences count records of a partition, and start over at 0, as in Kafka."""

TRIES_BEFORE_NEXT_REPLICA = 3
"""Failures to write to the leader alone, with ``acks`` 1 or 0, before the next replica in sync takes its place."""


def may_pass(error: SparklogError) -> bool:
    """Whether the same may work when it is tried again, with the same files if they are written."""
    if isinstance(error, CommitConflictError):
        return True
    if isinstance(error, IndeterminateCommitError):
        return not isinstance(error.__cause__, StoragePermissionError)
    return isinstance(error, StorageError) and not isinstance(error, StoragePermissionError)


class Sender:
    """Delivers what an accumulator gathers. Only its own thread calls ``deliver``."""

    def __init__(
        self,
        coordinator: Coordinator,
        config: ProducerConfig,
        accumulator: Accumulator,
        topics: Topics,
        metrics: ProducerMetrics,
    ) -> None:
        self._coordinator = coordinator
        self._config = config
        self._accumulator = accumulator
        self._topics = topics
        self._metrics = metrics
        self._clock = coordinator.log.clock
        self._identity: ProducerIdentity | None = None if config.idempotent and config.acks else NO_IDENTITY
        self._history: int | None = None
        self._sequences: dict[TopicPartition, int] = {}
        self._held = RetryQueue(coordinator.log.clock, config.retry_backoff)
        self._renew = False
        self.thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread. It ends when the accumulator is closed, and does not keep the process alive."""
        self.thread = threading.Thread(target=self._run, name="sparklog-producer", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            while (drained := self._accumulator.drain(self._held.due_in())) is not None:
                self.deliver(drained)
            while self._held and self._accumulator.pause(self._held.due_in() or 0):
                self._retry_held()
        except BaseException as error:  # also what no program expects: nobody may wait for ever
            logger.exception("the producer's thread has ended")
            self._accumulator.close(_refusal_after(error))
            self._accumulator.resolve(self._accumulator.force_close(), _stopped(error))

    # -- delivering

    def deliver(self, drained: Drained) -> None:
        """Commit these batches, or fail them; returns when each is resolved or held back."""
        self._deliver(self._held.without_held([PartitionBatches(place, batches) for place, batches in drained]))
        self._retry_held()

    def _deliver(self, in_flight: list[PartitionBatches]) -> None:
        attempt = 0
        while in_flight := self._in_time(self._without_other_identity(in_flight)):
            try:
                result = self._try(in_flight, attempt)
            except UnlinkedHistoryError as error:
                logger.info("the producer goes on under another id: %s", error)
            except SparklogError as error:
                if isinstance(error, IndeterminateCommitError):
                    _mark_unclear(in_flight)
                if not may_pass(error) and not self._may_go_elsewhere(in_flight, error):
                    in_flight = self._give_up(in_flight, error)
                    continue
                attempt += 1
                if not self._wait_to_retry(in_flight, error, attempt):
                    return self._fail(in_flight, error)
            except Exception as error:  # a mistake of ours must not make the records' senders wait
                logger.exception("the records of %d partitions cannot be sent", len(in_flight))
                _mark_unclear(in_flight)  # it says nothing of whether it came before the commit or after
                return self._fail(in_flight, error)
            else:
                return self._succeed(in_flight, result) if result is not None else None
        return None

    def _may_go_elsewhere(self, in_flight: Sequence[PartitionBatches], error: SparklogError) -> bool:
        """Whether another replica may take what the leader alone was to get, and refuses for good."""
        if self._config.acks == ACKS_ALL or not isinstance(error, StorageError):
            return False
        topics = self._coordinator.state.topics
        for place in [entry.place for entry in in_flight if entry.append is None]:
            found = topics.get(place.topic)
            if found is not None and any(len(one.isr) > 1 for one in found.partitions[place.partition :][:1]):
                return True
        return False

    def _wait_to_retry(self, in_flight: Sequence[PartitionBatches], error: SparklogError, attempt: int) -> bool:
        """Whether there is to be another try, after a while."""
        if attempt > self._config.retries:
            return False
        logger.info("the commit of %d partitions is tried again: %s", len(in_flight), error)
        self._metrics.retried([batch for entry in in_flight for batch in entry.batches])
        return self._accumulator.pause(self._config.retry_backoff)

    def _hold_refused(self, in_flight: Sequence[PartitionBatches], error: WriteRefusedError) -> list[PartitionBatches]:
        """Keep those whose partition has other brokers now, or too few, for another try; returns the others."""
        refused = [entry for entry in in_flight if _is_about(error, entry.place)] or list(in_flight)
        logger.info("records of %d partitions are written again: %s", len(refused), error)
        for entry in refused:
            entry.append, entry.refusal = None, error
            entry.refusals += 1
            if entry.refusals > self._config.retries:
                self._fail([entry], error)
            else:
                self._held.hold(entry)
                self._metrics.retried(entry.batches)
        return [entry for entry in in_flight if entry not in refused]

    def _retry_held(self) -> None:
        """Try what is held again, if it is time, with the brokers that the newest state names."""
        if self._held.due_in() != 0:
            return
        try:
            self._coordinator.refresh()
        except SparklogError as error:
            logger.info("the cluster cannot be read: %s", error)
        oldest = self._held.take_oldest()
        self._deliver(list(oldest))
        rest = self._held.take_rest(oldest, self._clock.monotonic() - self._config.delivery_timeout)
        late = [entry for entry in rest if not self._in_time([entry])]
        self._deliver([entry for entry in rest if entry not in late])

    def _try(self, in_flight: Sequence[PartitionBatches], failures: int) -> AppendResult | None:
        """Commit these batches, in files if they are not yet; None where nobody waits for what becomes of them."""
        identity = self._identify()
        by_topic: dict[str, list[PartitionBatches]] = {}
        for entry in in_flight:
            if entry.append is None:
                by_topic.setdefault(entry.place.topic, []).append(entry)
        for topic, unwritten in by_topic.items():
            self._write(topic, unwritten, identity, failures // TRIES_BEFORE_NEXT_REPLICA)
        request = AppendRequest(
            appends=[entry.append for entry in in_flight if entry.append is not None],
            acks=self._config.acks,
            history=min((entry.history for entry in in_flight if entry.history is not None), default=None),
        )
        if self._config.acks:
            with self._metrics.requests.at_root():
                return self._coordinator.append(request)
        self._resolve_unacknowledged(in_flight)
        try:
            with self._metrics.requests.at_root():
                self._coordinator.append(request)
        except SparklogError as error:
            logger.warning("records of %d partitions sent with acks=0 may be lost: %s", len(in_flight), error)
        return None

    def _resolve_unacknowledged(self, in_flight: Sequence[PartitionBatches]) -> None:
        for entry in in_flight:
            set_offsets(entry.batches, UNKNOWN_OFFSET, -1)
        batches = [batch for entry in in_flight for batch in entry.batches]
        self._metrics.committed(batches)
        self._accumulator.resolve(batches, None)

    def _identify(self) -> ProducerIdentity:
        if self._renew and self._config.idempotent:
            self._identity = None
            self._fail_unclear()
        if self._identity is None:
            history = self._coordinator.log.unlinked_jumps  # before: if more come, it is renewed
            with self._metrics.requests.at_root():
                self._identity = self._coordinator.init_producer()
            self._history, self._sequences = history, {}
        self._renew = False
        return self._identity

    def _write(
        self, topic: str, in_flight: Sequence[PartitionBatches], identity: ProducerIdentity, skipped: int
    ) -> None:
        metadata = self._metadata(topic, in_flight)
        ordered = sorted(in_flight, key=lambda entry: entry.place.partition)
        numbered = identity.producer_id >= 0
        runs = [
            PartitionRun(p.place.partition, p.batches, self._sequences.get(p.place, 0) if numbered else -1)
            for p in ordered
        ]
        began = self._clock.monotonic()
        with self._metrics.requests.counted():
            written = write_files(self._coordinator, metadata, runs, identity, self._config.acks, skipped)
        self._metrics.wrote(runs, written, began)
        for entry, append in zip(ordered, written, strict=True):
            entry.append, entry.refusal = append, None
            entry.history = self._history if numbered else None

    def _metadata(self, topic: str, in_flight: Sequence[PartitionBatches]) -> TopicMetadata:
        metadata = self._topics.check(topic)
        last = max(entry.place.partition for entry in in_flight)
        if metadata is None or last >= len(metadata.queues):
            raise UnknownTopicOrPartitionError(
                f"topic {topic!r} was deleted while records waited for it; create it, and send them again", topic=topic
            )
        return metadata

    # -- outcomes

    def _succeed(self, in_flight: Sequence[PartitionBatches], result: AppendResult) -> None:
        timestamp_ms = self._coordinator.state.timestamp_ms
        batches: list[PendingBatch] = []
        for entry, appended in zip(in_flight, result.appended, strict=True):
            append = entry.append
            assert append is not None
            set_offsets(entry.batches, appended.base_offset, timestamp_ms if append.log_append_time else -1)
            if append.base_sequence >= 0 and _identity_of(append) == self._identity:
                self._sequences[entry.place] = (append.base_sequence + appended.records) % SEQUENCES
            batches += entry.batches
        self._metrics.committed(batches)
        self._accumulator.resolve(batches, None)

    def _give_up(self, in_flight: list[PartitionBatches], error: SparklogError) -> list[PartitionBatches]:
        """An error that will not pass by itself: fail what it is about, or hold it back, and return the rest."""
        if isinstance(error, WriteRefusedError):
            return self._hold_refused(in_flight, error)
        if isinstance(error, UnknownProducerIdError):
            return self._fail_forgotten(in_flight, error)
        if isinstance(error, FencedError | IndeterminateCommitError):
            self._renew = self._renew or isinstance(error, FencedError)
            self._fail(in_flight, error)
            return []
        guilty = [entry for entry in in_flight if _is_about(error, entry.place)]
        if guilty or len(in_flight) == 1:
            self._fail(guilty or in_flight, error)
            return [entry for entry in in_flight if entry not in guilty] if guilty else []
        half = len(in_flight) // 2  # one of them is at fault and it does not say which, or they are too many together
        first, second = in_flight[:half], in_flight[half:]
        files = {entry.append.run.path for entry in first if entry.append is not None}
        for entry in second:
            if entry.append is not None and entry.append.run.path in files:
                entry.append = None  # a file's runs go into one commit; these are written again
        self._deliver(first)
        return second

    def _fail_forgotten(
        self, in_flight: Sequence[PartitionBatches], error: UnknownProducerIdError
    ) -> list[PartitionBatches]:
        """A partition has forgotten the producer: fail what may be in the log, and return the rest, which certainly is
        not: it is written again under a new producer id."""
        self._renew = True
        logger.info("records of %d partitions are written again or given up: %s", len(in_flight), error)
        rest = [entry for entry in in_flight if not entry.unclear]
        for entry in rest:
            entry.append = None
            self._metrics.retried(entry.batches)
        unclear = [entry for entry in in_flight if entry.unclear]
        if unclear:
            self._fail(unclear, _forgotten(error))
        return rest

    def _fail(self, in_flight: Sequence[PartitionBatches], error: BaseException) -> None:
        if any(entry.unclear for entry in in_flight):
            self._renew = True
        batches = [batch for entry in in_flight for batch in entry.batches]
        self._metrics.failed(batches)
        self._accumulator.resolve(batches, error)

    def _without_other_identity(self, in_flight: list[PartitionBatches]) -> list[PartitionBatches]:
        """Those that may be written: what may be in the log under the id before cannot be written under the next."""
        in_flight = self._without_other_history(in_flight)
        if not self._renew or not self._config.idempotent:
            return in_flight
        unclear = [entry for entry in in_flight if entry.unclear and entry.append is None]
        for entry in unclear:
            self._fail([entry], _timed_out(entry.place, True, self._config.delivery_timeout))
        return [entry for entry in in_flight if entry not in unclear]

    def _without_other_history(self, in_flight: list[PartitionBatches]) -> list[PartitionBatches]:
        """An id is of no use in a history that may be another one: what may be in the log under it fails, and the rest
        is written again under the next id."""
        history = self._coordinator.log.unlinked_jumps
        self._renew = self._renew or self._history not in (None, history)
        others = [entry for entry in in_flight if entry.history not in (None, history)]
        unclear = [entry for entry in others if entry.unclear]
        for entry in others:
            entry.append, entry.history = None, None
        for entry in unclear:
            self._fail([entry], _not_known(entry.place))
        return [entry for entry in in_flight if entry not in unclear]

    def _fail_unclear(self) -> None:
        """What is held and may be in the log under the id before cannot be written under the next one."""
        unclear = self._held.take_unclear()
        for entry in unclear:
            self._fail([entry], _timed_out(entry.place, True, self._config.delivery_timeout))

    def _in_time(self, in_flight: list[PartitionBatches]) -> list[PartitionBatches]:
        """Those that may still be tried. The others fail, and so does what has waited too long behind them."""
        oldest = self._clock.monotonic() - self._config.delivery_timeout
        late = [entry for entry in in_flight if entry.batches[0].created <= oldest]
        waiting = self._accumulator.take_expired() if late else []
        for entry in late:
            timed_out = _timed_out(entry.place, entry.unclear, self._config.delivery_timeout)
            self._fail([entry], timed_out if entry.unclear else entry.refusal or timed_out)
        for batch in waiting:
            self._metrics.failed([batch])
            self._accumulator.resolve([batch], _timed_out(batch.topic_partition, False, self._config.delivery_timeout))
        return [entry for entry in in_flight if entry not in late] if late else in_flight


def set_offsets(batches: Sequence[PendingBatch], base_offset: int, append_time_ms: int) -> None:
    """Tell the batches of one run which offsets they got."""
    for batch in batches:
        batch.base_offset = base_offset
        batch.append_time_ms = append_time_ms
        if base_offset != UNKNOWN_OFFSET:
            base_offset += batch.rows
        batch.columns = None


def _mark_unclear(in_flight: Sequence[PartitionBatches]) -> None:
    """Nobody knows whether those that are in a file were committed; what is in none was not asked for."""
    for entry in in_flight:
        entry.unclear = entry.unclear or entry.append is not None


def _identity_of(append: PartitionAppend) -> ProducerIdentity:
    return ProducerIdentity(append.producer_id, append.producer_epoch)


def _is_about(error: SparklogError, place: TopicPartition) -> bool:
    return error.topic == place.topic and error.partition in (None, place.partition)


def _timed_out(place: TopicPartition, unclear: bool, seconds: float) -> KafkaTimeoutError:
    what = (
        "whether they are in the log is not known, since the storage did not answer a commit"
        if unclear
        else "they are not in the log"
    )
    return KafkaTimeoutError(
        f"records for {place} were not committed within delivery_timeout_ms ({seconds * 1000:.0f}): {what}; see the "
        "log for what delayed them, and send them again if you can tell repetitions apart",
        topic=place.topic,
        partition=place.partition,
    )


def _forgotten(error: UnknownProducerIdError) -> IndeterminateCommitError:
    unknown = IndeterminateCommitError(
        "the storage did not answer a commit of these records, and meanwhile a partition has forgotten their producer: "
        f"whether they are in the log is not known; send them again if you can tell repetitions apart ({error})",
        topic=error.topic,
        partition=error.partition,
    )
    unknown.__cause__ = error
    return unknown


def _not_known(place: TopicPartition) -> IndeterminateCommitError:
    return IndeterminateCommitError(
        f"whether records for {place} are in the log is not known: the storage did not answer a commit, and the log "
        "was read on from a checkpoint that does not tell; send them again if you can tell repetitions apart",
        topic=place.topic,
        partition=place.partition,
    )


def _stopped(error: BaseException) -> SparklogError:
    stopped = SparklogError(f"the producer's thread has ended with {error!r}; close the producer and make another one")
    stopped.__cause__ = error
    return stopped


def _refusal_after(error: BaseException) -> Callable[[], Exception]:
    return lambda: _stopped(error)
