"""The producer's thread: takes what has gathered, writes a file for each topic, and commits it all at once.

While a commit is under way, records gather for the next one. One commit is under way at a time, so that the order of a
partition's records is the order in which they were sent.

Rules: every try of the same records has the same sequences, so that what a lost answer hid is not written twice. A
failure that may pass is tried again until ``delivery_timeout_ms``; one that will not pass fails the records it is
about, and the others go on. What is on the wrong brokers is written again, to those that the newest state names; while
there are too few of them, the partition is held back and the others go on (``parcels``). After
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

from sparklog.client.accumulator import Accumulator, Drained, PendingBatch
from sparklog.client.batch_files import NO_IDENTITY, PartitionRun, write_files
from sparklog.client.parcels import Held, Parcel
from sparklog.client.producer_config import ProducerConfig
from sparklog.client.producer_metrics import ProducerMetrics
from sparklog.client.topic_metadata import TopicMetadata, Topics
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
from sparklog.protocol.decide import UNKNOWN_OFFSET, AppendRequest, AppendResult, PartitionAppend
from sparklog.protocol.decide_append import ACKS_ALL
from sparklog.protocol.decide_producers import ProducerIdentity
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
        self._held = Held(coordinator.log.clock, config.retry_backoff)
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
        self._deliver(self._held.without_held([Parcel(place, batches) for place, batches in drained]))
        self._retry_held()

    def _deliver(self, parcels: list[Parcel]) -> None:
        attempt = 0
        while parcels := self._in_time(self._without_other_identity(parcels)):
            try:
                result = self._try(parcels, attempt)
            except UnlinkedHistoryError as error:
                logger.info("the producer goes on under another id: %s", error)
            except SparklogError as error:
                if isinstance(error, IndeterminateCommitError):
                    _mark_unclear(parcels)
                if not may_pass(error) and not self._may_go_elsewhere(parcels, error):
                    parcels = self._give_up(parcels, error)
                    continue
                attempt += 1
                if not self._wait_to_retry(parcels, error, attempt):
                    return self._fail(parcels, error)
            except Exception as error:  # a mistake of ours must not make the records' senders wait
                logger.exception("the records of %d partitions cannot be sent", len(parcels))
                _mark_unclear(parcels)  # it says nothing of whether it came before the commit or after
                return self._fail(parcels, error)
            else:
                return self._succeed(parcels, result) if result is not None else None
        return None

    def _may_go_elsewhere(self, parcels: Sequence[Parcel], error: SparklogError) -> bool:
        """Whether another replica may take what the leader alone was to get, and refuses for good."""
        if self._config.acks == ACKS_ALL or not isinstance(error, StorageError):
            return False
        topics = self._coordinator.state.topics
        for place in [parcel.place for parcel in parcels if parcel.append is None]:
            found = topics.get(place.topic)
            if found is not None and any(len(one.isr) > 1 for one in found.partitions[place.partition :][:1]):
                return True
        return False

    def _wait_to_retry(self, parcels: Sequence[Parcel], error: SparklogError, attempt: int) -> bool:
        """Whether there is to be another try, after a while."""
        if attempt > self._config.retries:
            return False
        logger.info("the commit of %d partitions is tried again: %s", len(parcels), error)
        self._metrics.retried([batch for parcel in parcels for batch in parcel.batches])
        return self._accumulator.pause(self._config.retry_backoff)

    def _hold_refused(self, parcels: Sequence[Parcel], error: WriteRefusedError) -> list[Parcel]:
        """Keep those whose partition has other brokers now, or too few, for another try; returns the others."""
        refused = [parcel for parcel in parcels if _is_about(error, parcel.place)] or list(parcels)
        logger.info("records of %d partitions are written again: %s", len(refused), error)
        for parcel in refused:
            parcel.append, parcel.refusal = None, error
            parcel.refusals += 1
            if parcel.refusals > self._config.retries:
                self._fail([parcel], error)
            else:
                self._held.hold(parcel)
                self._metrics.retried(parcel.batches)
        return [parcel for parcel in parcels if parcel not in refused]

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
        late = [parcel for parcel in rest if not self._in_time([parcel])]
        self._deliver([parcel for parcel in rest if parcel not in late])

    def _try(self, parcels: Sequence[Parcel], failures: int) -> AppendResult | None:
        """Commit these batches, in files if they are not yet; None where nobody waits for what becomes of them."""
        identity = self._identify()
        by_topic: dict[str, list[Parcel]] = {}
        for parcel in parcels:
            if parcel.append is None:
                by_topic.setdefault(parcel.place.topic, []).append(parcel)
        for topic, unwritten in by_topic.items():
            self._write(topic, unwritten, identity, failures // TRIES_BEFORE_NEXT_REPLICA)
        request = AppendRequest(
            appends=[parcel.append for parcel in parcels if parcel.append is not None],
            acks=self._config.acks,
            history=min((parcel.history for parcel in parcels if parcel.history is not None), default=None),
        )
        if self._config.acks:
            with self._metrics.requests.at_root():
                return self._coordinator.append(request)
        self._resolve_unacknowledged(parcels)
        try:
            with self._metrics.requests.at_root():
                self._coordinator.append(request)
        except SparklogError as error:
            logger.warning("records of %d partitions sent with acks=0 may be lost: %s", len(parcels), error)
        return None

    def _resolve_unacknowledged(self, parcels: Sequence[Parcel]) -> None:
        for parcel in parcels:
            set_offsets(parcel.batches, UNKNOWN_OFFSET, -1)
        batches = [batch for parcel in parcels for batch in parcel.batches]
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

    def _write(self, topic: str, parcels: Sequence[Parcel], identity: ProducerIdentity, skipped: int) -> None:
        metadata = self._metadata(topic, parcels)
        ordered = sorted(parcels, key=lambda parcel: parcel.place.partition)
        numbered = identity.producer_id >= 0
        runs = [
            PartitionRun(p.place.partition, p.batches, self._sequences.get(p.place, 0) if numbered else -1)
            for p in ordered
        ]
        began = self._clock.monotonic()
        with self._metrics.requests.counted():
            written = write_files(self._coordinator, metadata, runs, identity, self._config.acks, skipped)
        self._metrics.wrote(runs, written, began)
        for parcel, append in zip(ordered, written, strict=True):
            parcel.append, parcel.refusal = append, None
            parcel.history = self._history if numbered else None

    def _metadata(self, topic: str, parcels: Sequence[Parcel]) -> TopicMetadata:
        metadata = self._topics.check(topic)
        last = max(parcel.place.partition for parcel in parcels)
        if metadata is None or last >= len(metadata.queues):
            raise UnknownTopicOrPartitionError(
                f"topic {topic!r} was deleted while records waited for it; create it, and send them again", topic=topic
            )
        return metadata

    # -- outcomes

    def _succeed(self, parcels: Sequence[Parcel], result: AppendResult) -> None:
        timestamp_ms = self._coordinator.state.timestamp_ms
        batches: list[PendingBatch] = []
        for parcel, appended in zip(parcels, result.appended, strict=True):
            append = parcel.append
            assert append is not None
            set_offsets(parcel.batches, appended.base_offset, timestamp_ms if append.log_append_time else -1)
            if append.base_sequence >= 0 and _identity_of(append) == self._identity:
                self._sequences[parcel.place] = (append.base_sequence + appended.records) % SEQUENCES
            batches += parcel.batches
        self._metrics.committed(batches)
        self._accumulator.resolve(batches, None)

    def _give_up(self, parcels: list[Parcel], error: SparklogError) -> list[Parcel]:
        """An error that will not pass by itself: fail what it is about, or hold it back, and return the rest."""
        if isinstance(error, WriteRefusedError):
            return self._hold_refused(parcels, error)
        if isinstance(error, UnknownProducerIdError):
            return self._fail_forgotten(parcels, error)
        if isinstance(error, FencedError | IndeterminateCommitError):
            self._renew = self._renew or isinstance(error, FencedError)
            self._fail(parcels, error)
            return []
        guilty = [parcel for parcel in parcels if _is_about(error, parcel.place)]
        if guilty or len(parcels) == 1:
            self._fail(guilty or parcels, error)
            return [parcel for parcel in parcels if parcel not in guilty] if guilty else []
        half = len(parcels) // 2  # one of them is at fault and it does not say which, or they are too many together
        first, second = parcels[:half], parcels[half:]
        files = {parcel.append.run.path for parcel in first if parcel.append is not None}
        for parcel in second:
            if parcel.append is not None and parcel.append.run.path in files:
                parcel.append = None  # a file's runs go into one commit; these are written again
        self._deliver(first)
        return second

    def _fail_forgotten(self, parcels: Sequence[Parcel], error: UnknownProducerIdError) -> list[Parcel]:
        """A partition has forgotten the producer: fail what may be in the log, and return the rest, which certainly is
        not: it is written again under a new producer id."""
        self._renew = True
        logger.info("records of %d partitions are written again or given up: %s", len(parcels), error)
        rest = [parcel for parcel in parcels if not parcel.unclear]
        for parcel in rest:
            parcel.append = None
            self._metrics.retried(parcel.batches)
        unclear = [parcel for parcel in parcels if parcel.unclear]
        if unclear:
            self._fail(unclear, _forgotten(error))
        return rest

    def _fail(self, parcels: Sequence[Parcel], error: BaseException) -> None:
        if any(parcel.unclear for parcel in parcels):
            self._renew = True
        batches = [batch for parcel in parcels for batch in parcel.batches]
        self._metrics.failed(batches)
        self._accumulator.resolve(batches, error)

    def _without_other_identity(self, parcels: list[Parcel]) -> list[Parcel]:
        """Those that may be written: what may be in the log under the id before cannot be written under the next."""
        parcels = self._without_other_history(parcels)
        if not self._renew or not self._config.idempotent:
            return parcels
        unclear = [parcel for parcel in parcels if parcel.unclear and parcel.append is None]
        for parcel in unclear:
            self._fail([parcel], _timed_out(parcel.place, True, self._config.delivery_timeout))
        return [parcel for parcel in parcels if parcel not in unclear]

    def _without_other_history(self, parcels: list[Parcel]) -> list[Parcel]:
        """An id is of no use in a history that may be another one: what may be in the log under it fails, and the rest
        is written again under the next id."""
        history = self._coordinator.log.unlinked_jumps
        self._renew = self._renew or self._history not in (None, history)
        others = [parcel for parcel in parcels if parcel.history not in (None, history)]
        unclear = [parcel for parcel in others if parcel.unclear]
        for parcel in others:
            parcel.append, parcel.history = None, None
        for parcel in unclear:
            self._fail([parcel], _not_known(parcel.place))
        return [parcel for parcel in parcels if parcel not in unclear]

    def _fail_unclear(self) -> None:
        """What is held and may be in the log under the id before cannot be written under the next one."""
        unclear = self._held.take_unclear()
        for parcel in unclear:
            self._fail([parcel], _timed_out(parcel.place, True, self._config.delivery_timeout))

    def _in_time(self, parcels: list[Parcel]) -> list[Parcel]:
        """Those that may still be tried. The others fail, and so does what has waited too long behind them."""
        oldest = self._clock.monotonic() - self._config.delivery_timeout
        late = [parcel for parcel in parcels if parcel.batches[0].created <= oldest]
        waiting = self._accumulator.take_expired() if late else []
        for parcel in late:
            timed_out = _timed_out(parcel.place, parcel.unclear, self._config.delivery_timeout)
            self._fail([parcel], timed_out if parcel.unclear else parcel.refusal or timed_out)
        for batch in waiting:
            self._metrics.failed([batch])
            self._accumulator.resolve([batch], _timed_out(batch.topic_partition, False, self._config.delivery_timeout))
        return [parcel for parcel in parcels if parcel not in late] if late else parcels


def set_offsets(batches: Sequence[PendingBatch], base_offset: int, append_time_ms: int) -> None:
    """Tell the batches of one run which offsets they got."""
    for batch in batches:
        batch.base_offset = base_offset
        batch.append_time_ms = append_time_ms
        if base_offset != UNKNOWN_OFFSET:
            base_offset += batch.rows
        batch.columns = None


def _mark_unclear(parcels: Sequence[Parcel]) -> None:
    """Nobody knows whether those that are in a file were committed; what is in none was not asked for."""
    for parcel in parcels:
        parcel.unclear = parcel.unclear or parcel.append is not None


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
