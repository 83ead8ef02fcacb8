"""The producer's thread: drains the accumulator, writes a file for each topic, and publishes all of it in one commit.

While a commit is in flight, records accumulate for the next one. One commit is in flight at a time, so a partition's
records are in the order in which they were sent.

Rules:

* Every attempt to commit the same records has the same sequences, so records of a commit whose answer was lost are not
  written twice.
* A transient failure is retried until ``delivery_timeout_ms``; a permanent one fails the records it is about, and the
  others continue.
* Records on the wrong brokers are written again, to those that the newest state names; while there are too few of them,
  the partition is held back and the others continue (``in_flight``).
* After giving up on records whose outcome is unknown, the producer continues under a new producer id: either way, what
  follows is not taken for a repetition or a gap. It does the same after the log was read from a checkpoint that nothing
  links to what was read before (``CommitLog.unlinked_jumps``): if the root was restored, the id and its sequences may
  be another producer's.
* The runs of one file are published in one commit: between two commits, the records of the first could be deleted, and
  the file with them.

Not for: transactions (``transactions``).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from functools import partial

from sparklog.client.background_thread import BackgroundThread
from sparklog.client.producer.batch_files import NO_IDENTITY
from sparklog.client.producer.in_flight import (
    PartitionBatches,
    RetryQueue,
    batches_of,
    forget_files,
    halve,
    oldest_of,
)
from sparklog.client.producer.record_accumulator import Drained
from sparklog.client.producer.sender_base import SEQUENCES, SenderBase, set_offsets, unwritten_by_topic
from sparklog.errors import (
    FencedError,
    IndeterminateCommitError,
    KafkaTimeoutError,
    SparklogError,
    StorageError,
    UnknownProducerIdError,
    UnlinkedHistoryError,
    WriteRefusedError,
)
from sparklog.protocol.decide.acks import ACKS_ALL
from sparklog.protocol.decide.append import UNKNOWN_OFFSET, AppendRequest, AppendResult
from sparklog.protocol.decide.producers import ProducerIdentity, init_producer
from sparklog.retry import is_transient
from sparklog.types import TopicPartition

logger = logging.getLogger(__name__)

TRIES_BEFORE_NEXT_REPLICA = 3
"""Failed writes to the leader alone, with ``acks`` 1 or 0, before the next in-sync replica takes its place."""

OVERDUE_SECONDS = 0.5
"""seconds after ``delivery_timeout_ms`` at which records fail although the sending thread waits for the storage."""


LAST_CALL_SECONDS = 5.0
"""How long ``join`` waits for the thread once no record is left."""


class Sender(SenderBase):
    """Delivers the batches of an accumulator. Only its own thread calls ``deliver``."""

    def __post_init__(self) -> None:
        super().__post_init__()
        config = self._config
        self._identity: ProducerIdentity | None = None if config.idempotent and config.acks else NO_IDENTITY
        self._timeline: int | None = None
        self._held = RetryQueue(self._clock, config.retry_backoff)
        self._renew = False
        self._cause: SparklogError | None = None
        self._running = BackgroundThread(self._run, "sparklog-producer", self._accumulator.lock)
        self._timing = BackgroundThread(self._fail_overdue, "sparklog-producer-timeouts")

    @property
    def thread(self) -> threading.Thread | None:
        """The thread that sends, None before it runs."""
        return self._running.thread

    @property
    def runs_caller(self) -> bool:
        """Whether the caller is a callback in one of these threads, which then cannot be waited for."""
        return threading.current_thread() in (self._running.thread, self._timing.thread)

    def join(self, seconds: float | None) -> None:
        """Wait at most ``seconds`` until the sending thread, if there is one, has ended; in a callback not at all.

        Without a limit wait until all records are resolved, and for the rest of its last call: a call of the storage
        that never returns keeps the thread, but no record longer than ``delivery_timeout_ms``.
        """
        if self.runs_caller:
            return
        if seconds is None and self._running.thread is not None:
            self._accumulator.flush(None)
            seconds = LAST_CALL_SECONDS if self._config.acks else self._config.delivery_timeout  # 0: resolved before
        self._running.join(seconds)

    def start(self) -> None:
        """Start the threads unless they run. They end when the accumulator is closed, and do not keep the process
        alive. Raises SparklogError if the system starts no thread now."""
        self._timing.start()
        self._running.start()

    def _fail_overdue(self) -> None:
        """Fail records at ``delivery_timeout_ms`` while a call of the storage does not return, as the sending thread
        would. What is in flight may get into the log when it does."""
        while (overdue := self._accumulator.wait_for_overdue(OVERDUE_SECONDS)) is not None:
            for batch in self._accumulator.take_expired():
                self._resolve([batch], self._timed_out(batch.topic_partition, False, self._cause))
            for batch in overdue:
                if not batch.done:
                    self._resolve([batch], self._timed_out(batch.topic_partition, True, self._cause))

    def _run(self) -> None:
        try:
            while (drained := self._accumulator.drain(self._held.due_in())) is not None:
                self.deliver(drained)
            while self._held and self._accumulator.pause(self._held.due_in()):
                self._retry_held()
        except BaseException as error:  # unexpected ones too: no caller may wait forever
            logger.exception("the producer's thread ended with an error")
            self._accumulator.close(partial(_stopped, error))
            self._accumulator.resolve(self._accumulator.force_close(), _stopped(error))
        finally:
            self._accumulator.end()

    # -- delivering

    def deliver(self, drained: Drained) -> None:
        """Commit these batches, or fail them; return when each is resolved or held back."""
        self._deliver(self._held.queue_behind_held([PartitionBatches(*partition) for partition in drained]))
        self._retry_held()

    def _deliver(self, in_flight: list[PartitionBatches]) -> None:
        attempt = 0
        while in_flight := self._fail_late(self._drop_other_identity(in_flight)):
            try:
                result = self._try(in_flight, attempt)
            except UnlinkedHistoryError as error:
                logger.info("continuing with a new producer id: %s", error)
            except SparklogError as error:
                if isinstance(error, IndeterminateCommitError):
                    mark_outcome_unknown(in_flight)
                if not is_transient(error) and not self._may_use_other_replica(in_flight, error):
                    in_flight = self._give_up(in_flight, error)
                    continue
                attempt += 1
                self._note_cause(in_flight, error)
                if not self._wait_to_retry(in_flight, error, attempt):
                    return self._fail(in_flight, error)
            except Exception as error:  # a bug must not leave the callers waiting
                logger.exception("could not send the records of %d partitions", len(in_flight))
                mark_outcome_unknown(in_flight)  # it may have come before the commit or after
                return self._fail(in_flight, error)
            else:
                return self._succeed(in_flight, result) if result is not None else None
        return None

    def _may_use_other_replica(self, in_flight: Sequence[PartitionBatches], error: SparklogError) -> bool:
        """Whether another replica may take records that only the leader was to get and permanently refuses."""
        if self._config.acks == ACKS_ALL or not isinstance(error, StorageError):
            return False
        state = self._coordinator.state
        partitions = [state.find_partition(*entry.topic_partition) for entry in in_flight if entry.append is None]
        return any(partition is not None and len(partition.isr) > 1 for partition in partitions)

    def _wait_to_retry(self, in_flight: Sequence[PartitionBatches], error: SparklogError, attempt: int) -> bool:
        """Wait for the back-off; return whether to retry then."""
        if attempt > self._config.retries:
            return False
        level = logging.WARNING if attempt == 1 else logging.INFO
        logger.log(level, "retrying the commit of %d partitions after: %s", len(in_flight), error)
        self._metrics.retried(batches_of(in_flight))
        return self._accumulator.pause(self._config.retry_backoff)

    def _note_cause(self, in_flight: Sequence[PartitionBatches], error: SparklogError) -> None:
        self._cause = error
        for entry in in_flight:
            entry.cause = error

    def _hold_refused(self, in_flight: Sequence[PartitionBatches], error: WriteRefusedError) -> list[PartitionBatches]:
        """Hold back the entries whose partition now has other brokers, or too few, for a retry; return the others."""
        refused = [entry for entry in in_flight if _is_about(error, entry.topic_partition)] or list(in_flight)
        logger.info("writing records of %d partitions again after: %s", len(refused), error)
        forget_files(refused)
        for entry in refused:
            entry.refusal = error
            entry.refusals += 1
            if entry.refusals > self._config.retries:
                self._fail([entry], error)
            else:
                self._held.hold(entry)
                self._metrics.retried(entry.batches)
        return [entry for entry in in_flight if entry not in refused]

    def _retry_held(self) -> None:
        """Retry what is held, if it is due, with the brokers that the newest state names."""
        if self._held.due_in() > 0:
            return
        self._refresh()
        oldest = self._held.take_oldest()
        self._deliver(list(oldest))
        rest = self._held.take_rest(oldest, self._clock.monotonic() - self._config.delivery_timeout)
        self._deliver([entry for entry in rest if self._fail_late([entry])])

    def attempt(self, in_flight: Sequence[PartitionBatches], failures: int) -> None:
        """Try once to commit these batches. They are resolved unless it raises."""
        result = self._try(in_flight, failures)
        if result is not None:
            self._succeed(in_flight, result)

    def renew(self) -> None:
        """Let the next attempt begin with another producer id."""
        self._renew = True

    def _try(self, in_flight: Sequence[PartitionBatches], failures: int) -> AppendResult | None:
        """Write those batches that are in no file yet, and commit all; return None with ``acks=0``."""
        identity = self._identify()
        # read before files are written: the version in their names is one of this timeline
        timeline = self._timeline if identity.producer_id >= 0 else self._coordinator.log.unlinked_jumps
        for topic, unwritten in unwritten_by_topic(in_flight).items():
            began = self._coordinator.elapsed.now()
            self._write_topic(topic, unwritten, identity, failures // TRIES_BEFORE_NEXT_REPLICA)
            for entry in unwritten:
                entry.written = began
                entry.refusal = None
                entry.timeline = timeline
        request = AppendRequest(
            appends=[entry.append for entry in in_flight if entry.append is not None],
            acks=self._config.acks,
            timeline=min((entry.timeline for entry in in_flight if entry.timeline is not None), default=None),
        )
        if self._config.acks:
            with self._metrics.requests.at_root():
                return self._coordinator.append(request, oldest_of(in_flight))
        for entry in in_flight:
            set_offsets(entry.batches, UNKNOWN_OFFSET, -1)
        self._resolve(batches_of(in_flight))
        try:
            with self._metrics.requests.at_root():
                self._coordinator.append(request, oldest_of(in_flight))
        except SparklogError as error:
            logger.warning("records of %d partitions sent with acks=0 may be lost: %s", len(in_flight), error)
        return None

    def _identify(self) -> ProducerIdentity:
        if self._renew and self._config.idempotent:
            self._identity = None
            self._fail_timed_out(self._held.take_outcome_unknown())  # the next id cannot repeat them
        if self._identity is None:
            timeline = self._coordinator.log.unlinked_jumps  # read first: after a later jump the id is renewed
            with self._metrics.requests.at_root():
                self._identity = self._coordinator.submit(init_producer)
            self._timeline, self._sequences = timeline, {}
        self._renew = False
        return self._identity

    # -- outcomes

    def _succeed(self, in_flight: Sequence[PartitionBatches], result: AppendResult) -> None:
        self._cause = None
        self._set_results(in_flight, result)
        for entry, appended in zip(in_flight, result.appended, strict=True):
            append = entry.append
            assert append is not None
            if append.base_sequence >= 0 and (append.producer_id, append.producer_epoch) == self._identity:
                self._sequences[entry.topic_partition] = (append.base_sequence + appended.records) % SEQUENCES
        self._resolve(batches_of(in_flight))

    def _give_up(self, in_flight: list[PartitionBatches], error: SparklogError) -> list[PartitionBatches]:
        """Fail or hold back what a permanent error is about, and return the rest."""
        if isinstance(error, WriteRefusedError):
            return self._hold_refused(in_flight, error)
        if isinstance(error, UnknownProducerIdError):
            return self._fail_unknown_producer(in_flight, error)
        if isinstance(error, FencedError | IndeterminateCommitError):
            self._renew = self._renew or isinstance(error, FencedError)
            self._fail(in_flight, error)
            return []
        failed = [entry for entry in in_flight if _is_about(error, entry.topic_partition)]
        if failed:
            self._fail(failed, error)
            return [entry for entry in in_flight if entry not in failed]
        parts = halve(in_flight)  # it does not say which entry is at fault, or together they are too large
        if parts is None:
            self._fail(in_flight, error)
            return []
        self._deliver(parts[0])
        return parts[1]

    def _fail_unknown_producer(
        self, in_flight: Sequence[PartitionBatches], error: UnknownProducerIdError
    ) -> list[PartitionBatches]:
        """Handle a partition that has expired the producer: fail what may be in the log, and return the rest.

        The rest is certainly not in the log; it is written again under a new producer id.
        """
        self._renew = True
        logger.info(
            "writing records of %d partitions again under a new producer id, or failing them: %s", len(in_flight), error
        )
        rest = [entry for entry in in_flight if not entry.outcome_unknown]
        forget_files(rest)
        self._metrics.retried(batches_of(rest))
        self._fail([entry for entry in in_flight if entry.outcome_unknown], error)
        return rest

    def _fail(self, in_flight: Sequence[PartitionBatches], error: BaseException) -> None:
        """Fail these entries: with the error, or with one that says that they may be in the log."""
        certain = [entry for entry in in_flight if not entry.outcome_unknown]
        self._resolve(batches_of(certain), error)
        for entry in in_flight:
            if entry.outcome_unknown:
                self._renew = True
                self._resolve(entry.batches, _as_unknown(entry.topic_partition, error))

    def _fail_timed_out(self, in_flight: Sequence[PartitionBatches]) -> None:
        for entry in in_flight:
            self._fail([entry], self._timed_out(entry.topic_partition, entry.outcome_unknown, entry.cause))

    def _drop_other_identity(self, in_flight: list[PartitionBatches]) -> list[PartitionBatches]:
        """Fail what may be in the log under another producer id than that of the next file, which cannot repeat it.
        Return the rest."""
        in_flight = self._drop_other_timeline(in_flight)
        if not self._config.idempotent:
            return in_flight
        unwritten = [entry for entry in in_flight if entry.outcome_unknown and entry.append is None]
        unknown = [entry for entry in unwritten if self._renew or entry.unknown_under != self._identity]
        self._fail_timed_out(unknown)
        return [entry for entry in in_flight if entry not in unknown]

    def _drop_other_timeline(self, in_flight: list[PartitionBatches]) -> list[PartitionBatches]:
        """Fail what may be in the log under an id of another timeline; return the rest, to be written under a new id.

        A producer id is only valid in the timeline in which it was given out.
        """
        timeline = self._coordinator.log.unlinked_jumps
        self._renew = self._renew or self._timeline not in (None, timeline)
        others = [entry for entry in in_flight if entry.timeline not in (None, timeline)]
        unknown = [entry for entry in others if entry.outcome_unknown]
        for entry in others:
            entry.append, entry.timeline = None, None
        for entry in unknown:
            self._fail([entry], _as_unknown(entry.topic_partition, _UNLINKED))
        return [entry for entry in in_flight if entry not in unknown]

    def _fail_late(self, in_flight: list[PartitionBatches]) -> list[PartitionBatches]:
        """Fail what is over ``delivery_timeout_ms``, also in the queues behind it; return what may still be sent."""
        oldest = self._clock.monotonic() - self._config.delivery_timeout
        late = [entry for entry in in_flight if entry.batches[0].created <= oldest]
        waiting = self._accumulator.take_expired() if late else []
        for entry in late:
            timed_out = self._timed_out(entry.topic_partition, entry.outcome_unknown, entry.cause)
            self._fail([entry], timed_out if entry.outcome_unknown else entry.refusal or timed_out)
        for batch in waiting:
            self._resolve([batch], self._timed_out(batch.topic_partition, False, self._cause))
        return [entry for entry in in_flight if entry not in late] if late else in_flight

    def _timed_out(
        self, topic_partition: TopicPartition, outcome_unknown: bool, cause: SparklogError | None
    ) -> KafkaTimeoutError:
        outcome = (
            "whether they are in the log is not known, since the storage did not answer a commit"
            if outcome_unknown
            else "they are not in the log"
        )
        last = "a call of the storage takes that long" if cause is None else f"the last error was: {cause}"
        timed_out = KafkaTimeoutError(
            f"records for {topic_partition} were not committed within delivery_timeout_ms "
            f"({self._config.delivery_timeout * 1000:.0f}): {outcome}; {last}. Send them again if consumers can detect "
            "duplicates",
            **topic_partition._asdict(),
        )
        timed_out.__cause__ = cause
        return timed_out


def mark_outcome_unknown(in_flight: Sequence[PartitionBatches]) -> None:
    """Mark the entries that are in a file: they may have been committed. Those in no file were not requested."""
    for entry in in_flight:
        if entry.append is not None and entry.unknown_under is None:
            entry.unknown_under = ProducerIdentity(entry.append.producer_id, entry.append.producer_epoch)


def _is_about(error: SparklogError, topic_partition: TopicPartition) -> bool:
    return error.topic == topic_partition.topic and error.partition in (None, topic_partition.partition)


_UNLINKED = "the log was read from a checkpoint that does not say"


def _as_unknown(topic_partition: TopicPartition, error: BaseException | str) -> BaseException:
    """Return the error for records that may be in the log: one that says so."""
    if isinstance(error, IndeterminateCommitError | KafkaTimeoutError):
        return error
    unknown = IndeterminateCommitError(
        f"whether records for {topic_partition} are in the log is not known: the storage did not answer a commit, and "
        f"then: {error}; send them again if consumers can detect duplicates",
        **topic_partition._asdict(),
    )
    unknown.__cause__ = error if isinstance(error, BaseException) else None
    return unknown


def _stopped(error: BaseException) -> SparklogError:
    stopped = SparklogError(f"the producer's thread ended with {error!r}; close the producer and create another one")
    stopped.__cause__ = error
    return stopped
