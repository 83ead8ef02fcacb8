"""Transactions: records of any number of topics and offsets of any number of groups, published by one commit.

    producer.init_transactions()
    producer.begin_transaction()
    producer.send("orders", b"value")
    producer.send_offsets_to_transaction({TopicPartition("in", 0): OffsetAndMetadata(7)}, "group")
    producer.commit_transaction()

Records gather in memory; when that is full, or ``flush`` asks for it, they go into files, which nobody sees. The commit
writes what is left and names all of it at once. To abort is to forget: files are deleted, and nothing is committed.

Rules: the states and who may follow whom are the table below. A commit whose answer was lost is repeated as it was,
which the cluster answers with what it got the first time; as long as its outcome is unknown its files stay. An error
that another transaction may not meet makes this one abortable; an instance that was replaced is of no more use. After
a jump to a checkpoint that nothing links to what was read before (``CommitLog.unlinked_jumps``) the producer id may be
another one's: the transaction becomes abortable, and the next one begins with another identity.

Everything runs in the threads that call. Thread-safe.
"""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from sparklog.client.producer.batch_files import PartitionRun, delete_files, write_files
from sparklog.client.producer.config import ProducerConfig
from sparklog.client.producer.in_flight import PartitionBatches
from sparklog.client.producer.metrics import ProducerMetrics
from sparklog.client.producer.record_accumulator import Accumulator, PendingBatch
from sparklog.client.producer.sender import SEQUENCES, may_pass, set_offsets
from sparklog.client.producer.takeover import Takeover
from sparklog.client.producer.topic_metadata import Topics
from sparklog.config.cluster_configs import ClusterConfig
from sparklog.coordinator import Coordinator
from sparklog.errors import (
    IndeterminateCommitError,
    InvalidArgumentError,
    InvalidArgumentTypeError,
    InvalidTransactionTimeoutError,
    InvalidTxnStateError,
    KafkaError,
    KafkaTimeoutError,
    OutOfOrderSequenceNumberError,
    ProducerFencedError,
    SparklogError,
    TransactionAbortedError,
    TransactionStateError,
    UnknownProducerIdError,
    UnknownTopicOrPartitionError,
    UnlinkedHistoryError,
    WriteRefusedError,
)
from sparklog.protocol.decide.append import AppendRequest, AppendResult
from sparklog.protocol.decide.groups import GroupCommit
from sparklog.protocol.decide.producers import ProducerIdentity
from sparklog.protocol.names import validate_group_id
from sparklog.types import OffsetAndMetadata, TopicPartition

logger = logging.getLogger(__name__)

UNINITIALIZED = "UNINITIALIZED"
READY = "READY"
IN_TRANSACTION = "IN_TRANSACTION"
COMMITTING = "COMMITTING_TRANSACTION"
ABORTABLE_ERROR = "ABORTABLE_ERROR"
FATAL_ERROR = "FATAL_ERROR"

_ALLOWED = {
    "init_transactions": frozenset({UNINITIALIZED, READY}),
    "begin_transaction": frozenset({READY}),
    "send_offsets_to_transaction": frozenset({IN_TRANSACTION}),
    "commit_transaction": frozenset({IN_TRANSACTION, COMMITTING}),
    "abort_transaction": frozenset({IN_TRANSACTION, COMMITTING, ABORTABLE_ERROR}),
}
"""In which states each step may be taken. ``send`` is for IN_TRANSACTION alone; every other state refuses it."""

_FIRST = {
    UNINITIALIZED: "call init_transactions() first",
    READY: "call begin_transaction() first",
    IN_TRANSACTION: "call commit_transaction() or abort_transaction() first",
    COMMITTING: "its commit had no answer in time: call commit_transaction() again, or abort_transaction()",
}

_FATAL = (ProducerFencedError, UnknownProducerIdError, OutOfOrderSequenceNumberError)


class Transactions:
    """The transactions of one producer. Thread-safe: one step at a time."""

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
        self._lock = threading.RLock()
        self._takeover = Takeover(coordinator, config.transactional_id)
        self._identity: ProducerIdentity | None = None
        self._history = 0
        self._error: SparklogError | None = None
        self._forget()
        self._enter(UNINITIALIZED)
        accumulator.make_room = self.write
        accumulator.in_transaction = True

    def _forget(self) -> None:
        self._in_flight: list[PartitionBatches] = []
        self._sequences: dict[TopicPartition, int] = {}
        self._groups: dict[str, GroupCommit] = {}
        self._unclear = False
        self._fences_itself = False
        self._keeps_files = False
        self._began = 0.0

    # -- steps

    def init(self) -> None:
        """Take the transactional id over: older instances are fenced. Once done, doing it again does nothing.

        Raises InvalidTransactionTimeoutError where ``transaction_timeout_ms`` is over ``transaction.max.timeout.ms``,
        KafkaTimeoutError after ``max_block_ms``.
        """
        with self._lock:
            self._check("init_transactions")
            if self._identity is None:
                self._identify("init_transactions()")
            self._enter(READY)

    def _identify(self, what: str) -> None:
        history = self._coordinator.log.unlinked_jumps  # before: what comes meanwhile makes it get another identity
        self._identity = self._until_answered(self._take_over, what)
        self._history = history

    def _take_over(self) -> ProducerIdentity:
        """An identity; not in place of an instance that has taken over from this one, as far as the log tells."""
        mine = self._identity
        if mine is not None:
            state = self._coordinator.refresh()
            number = state.indexes.transactional_ids.get(self._config.transactional_id)
            if number == mine.producer_id and state.producers[number].epoch >= mine.producer_epoch:
                return self._fence()
        return self._init_producer()

    def _init_producer(self, present: ProducerIdentity | None = None) -> ProducerIdentity:
        limit = ClusterConfig.resolve(self._coordinator.refresh().configs).get("transaction.max.timeout.ms")
        if isinstance(limit, int) and self._config.transaction_timeout * 1000 > limit:
            raise InvalidTransactionTimeoutError(
                f"Producer(transaction_timeout_ms={self._config.transaction_timeout * 1000:.0f}) is over the cluster's "
                f"transaction.max.timeout.ms, {limit}; give less, or raise that",
                config="transaction_timeout_ms",
            )
        with self._metrics.requests.at_root():
            return self._takeover.take(present)

    def begin(self) -> None:
        """Begin a transaction. Raises InvalidTxnStateError."""
        with self._lock:
            self._check("begin_transaction")
            if self._identity is None or self._history != self._coordinator.log.unlinked_jumps:
                try:  # the epochs of the id before are used up, or the id may be another one's
                    self._identify("begin_transaction()")
                except _FATAL as error:
                    self._stop(error)
            self._forget()
            self._began = self._clock.monotonic()
            self._enter(IN_TRANSACTION)

    def add_offsets(self, offsets: Mapping[Any, Any], group_metadata: object) -> None:
        """Commit these offsets with the transaction. Raises InvalidTxnStateError, InvalidArgumentTypeError."""
        with self._lock:
            self._check("send_offsets_to_transaction")
            commit = group_commit(offsets, group_metadata)
            earlier = self._groups.get(commit.group)
            if earlier is not None:
                commit = GroupCommit(
                    group=commit.group,
                    offsets={**earlier.offsets, **commit.offsets},
                    member=commit.member,
                    generation=commit.generation,
                    instance_id=commit.instance_id,
                )
            if commit.offsets:
                self._groups[commit.group] = commit

    def write(self) -> None:
        """Put what is in memory into files, which nobody sees. Does nothing outside of a transaction.

        An error makes the transaction abortable, and so does whatever else ends this, such as KeyboardInterrupt.
        """
        with self._lock:
            if self._state not in (IN_TRANSACTION, COMMITTING) or self._unclear:
                return  # what was asked to be committed is in files already
            try:
                self._write_taken()
            except SparklogError as error:
                self._make_abortable(error)
                raise
            except BaseException as error:
                self._make_abortable(self._incomplete(repr(error)))
                raise

    def commit(self) -> None:
        """Publish the transaction, all of it at once.

        Raises KafkaTimeoutError after ``max_block_ms`` without an answer, IndeterminateCommitError where the storage
        refuses to tell: call it again, unless it says that the cluster cannot tell any more. Every other error leaves
        nothing visible, and ``abort`` heals it unless the producer is fenced.
        """
        with self._lock:
            self._check("commit_transaction")
            if self._state == IN_TRANSACTION:
                self._check_age()
                self._enter(COMMITTING)
            for batch in list(self._accumulator.unfinished):
                batch.in_transaction = False
            self.write()
            if not self._in_flight and not self._groups:
                return self._enter(READY)
            try:
                result = self._until_answered(self._append, "commit_transaction()")
            except KafkaTimeoutError:
                raise  # the same commit may be tried again
            except UnlinkedHistoryError as error:
                raise self._leave_history(error) from error
            except SparklogError as error:
                is_own_fence = self._fences_itself and isinstance(error, ProducerFencedError)
                if isinstance(error, _FATAL) and not is_own_fence:
                    self._stop(error)
                settled = self._settle("commit_transaction()") if self._unclear else None
                if settled is None:
                    if is_own_fence:
                        lost = self._lost_place(error)
                        self._make_abortable(lost)
                        raise lost from error
                    self._make_abortable(error)
                    raise
                result = settled
            self._succeed(result)

    def abort(self) -> None:
        """Forget the transaction: nothing of it was or will be visible.

        After a commit without an answer this finds out what became of it: raises InvalidTxnStateError where it is in
        the log, and KafkaTimeoutError or IndeterminateCommitError as long as the storage does not tell.
        """
        with self._lock:
            self._check("abort_transaction")
            if self._unclear:
                self._find_out()
            self._accumulator.set_refusal(self._refuse_send)
            self._drop(TransactionAbortedError("the transaction was aborted"))
            self._enter(READY)

    def lose_record(self, error: KafkaError) -> None:
        """A record of the open transaction was refused, so it can only be aborted."""
        with self._lock:
            if self._state == IN_TRANSACTION:
                self._make_abortable(error)

    def close(self, error: BaseException) -> None:
        """Fail what is not committed, and delete its files unless they may be committed."""
        with self._lock:
            self._drop(error)

    # -- parts of the steps

    def _find_out(self) -> None:
        """Make it certain that nothing of the transaction is committed, or raise what is known of it."""
        result = self._settle("abort_transaction()")
        if result is not None:
            self._succeed(result)
            raise InvalidTxnStateError(
                f"the transaction of {self._config.transactional_id!r} cannot be aborted: it is committed, by a "
                "commit_transaction() before that had no answer; its records are in the log, and begin_transaction() "
                "begins the next one"
            )
        self._unclear = False

    def _check(self, step: str) -> None:
        if self._state in _ALLOWED[step]:
            return
        if self._error is not None:
            raise self._refusal_of_error(step)
        raise InvalidTxnStateError(
            f"{step}() of transactional id {self._config.transactional_id!r} in state {self._state}: {self._hint()}"
        )

    def _hint(self) -> str:
        return _FIRST[self._state]

    def _refusal_of_error(self, step: str) -> SparklogError:
        assert self._error is not None
        if self._state == FATAL_ERROR:
            return copy.copy(self._error)
        refusal = InvalidTxnStateError(
            f"{step}() of transactional id {self._config.transactional_id!r} after an error ({self._error}): call "
            "abort_transaction(), then begin another transaction"
        )
        refusal.__cause__ = self._error
        return refusal

    def _enter(self, state: str) -> None:
        self._state = state
        if state not in (ABORTABLE_ERROR, FATAL_ERROR):
            self._error = None
        self._accumulator.set_refusal(None if state == IN_TRANSACTION else self._refuse_send)

    def _refuse_send(self) -> Exception:
        if self._error is not None:
            return self._refusal_of_error("send")
        return TransactionStateError(
            f"send() of transactional id {self._config.transactional_id!r} in state {self._state}: {self._hint()}"
        )

    def _check_age(self) -> None:
        age = self._clock.monotonic() - self._began
        if age > self._config.transaction_timeout:
            error = TransactionAbortedError(
                f"the transaction of {self._config.transactional_id!r} began {age:.1f} s ago, and "
                f"transaction_timeout_ms is {self._config.transaction_timeout * 1000:.0f}; nothing of it is visible: "
                "call abort_transaction(), and do it again"
            )
            self._make_abortable(error)
            raise error

    def _incomplete(self, why: str) -> TransactionAbortedError:
        return TransactionAbortedError(
            f"records of the transaction of {self._config.transactional_id!r} are in no file ({why}); nothing of it is "
            "visible: call abort_transaction(), and do it again"
        )

    def _write_taken(self) -> None:
        self._in_flight += [PartitionBatches(place, batches) for place, batches in self._accumulator.take()]
        in_flight = [entry for entry in self._in_flight if entry.append is None]
        self._until_answered(lambda: self._write(in_flight), "writing records of a transaction", may_be_written)
        batches = [batch for entry in in_flight for batch in entry.batches]
        self._accumulator.release(batches)

    def _write(self, in_flight: Sequence[PartitionBatches]) -> None:
        assert self._identity is not None
        by_topic: dict[str, list[PartitionBatches]] = {}
        for entry in in_flight:
            if entry.append is None:
                by_topic.setdefault(entry.place.topic, []).append(entry)
        for topic, unwritten in by_topic.items():
            metadata = self._topics.check(topic)
            if metadata is None:
                raise UnknownTopicOrPartitionError(f"topic {topic!r} was deleted during the transaction", topic=topic)
            unwritten.sort(key=lambda entry: entry.place.partition)
            runs = [PartitionRun(p.place.partition, p.batches, self._sequences.get(p.place, 0)) for p in unwritten]
            began = self._clock.monotonic()
            with self._metrics.requests.counted():
                written = write_files(self._coordinator, metadata, runs, self._identity)
            self._metrics.wrote(runs, written, began)
            for entry, append in zip(unwritten, written, strict=True):
                entry.append = append
                self._sequences[entry.place] = (append.base_sequence + append.run.records) % SEQUENCES
                for batch in entry.batches:
                    batch.columns = None

    def _append(self) -> AppendResult:
        """Until an error says that nothing was written nobody knows, also where the program is interrupted in here."""
        appends = [entry.append for entry in self._in_flight if entry.append is not None]
        if len(appends) < len(self._in_flight):  # offsets must not be committed without the records that belong to them
            raise self._incomplete("writing them was interrupted")
        before, self._unclear = self._unclear, True
        request = AppendRequest(
            appends=appends, groups=list(self._groups.values()), transaction=self._identity, history=self._history
        )
        try:
            with self._metrics.requests.at_root():
                return self._coordinator.append(request)
        except IndeterminateCommitError:
            raise
        except SparklogError:
            self._unclear = before
            raise

    def _settle(self, what: str) -> AppendResult | None:
        """What an earlier try got that had no answer, after a later one was refused; None if it got nothing.

        A new epoch makes that certain: its commit takes the place that a stalled try could still have got. An instance
        that has taken over meanwhile is not fenced by this. Where the storage lets none of it through, the outcome
        stays unknown: raises IndeterminateCommitError, or KafkaTimeoutError.
        """
        following: ProducerIdentity | None = None
        replaced: SparklogError | None = None
        try:
            following = self._until_answered(self._fence, what)
        except _FATAL as error:
            replaced = error
        except KafkaTimeoutError:
            raise
        except SparklogError as error:
            raise self._unknown(error) from error
        try:
            result: AppendResult | None = self._until_answered(self._append, what)
        except UnlinkedHistoryError as error:
            raise self._leave_history(error) from error
        except UnknownProducerIdError as error:
            self._stop(error)
        except _FATAL:
            result = None
        except KafkaTimeoutError:
            raise
        except SparklogError as error:
            raise self._unknown(error) from error
        if replaced is None:
            self._identity = following
            return None if result is None else result._replace(producer=following)
        if result is None:
            self._stop(replaced)
        return result

    def _fence(self) -> ProducerIdentity:
        """The next epoch. Unless an error is certain, a later try may find it taken by this one, and recognises it."""
        before, self._fences_itself = self._fences_itself, True
        try:
            return self._init_producer(self._identity)
        except IndeterminateCommitError:
            raise
        except SparklogError:
            self._fences_itself = before
            raise

    def _lost_place(self, error: SparklogError) -> TransactionAbortedError:
        """This producer's next epoch was stored, so a transaction of the one before is not there and cannot come."""
        return TransactionAbortedError(
            f"the transaction of {self._config.transactional_id!r} is not committed: it was given up while the storage "
            f"did not answer ({error}); call abort_transaction(), and do it again"
        )

    def _leave_history(self, error: UnlinkedHistoryError) -> SparklogError:
        """Make the transaction abortable: in the history that was loaded its producer id may be another one's."""
        left: SparklogError = TransactionAbortedError(
            f"the transaction of {self._config.transactional_id!r} cannot be committed: {error}; nothing of it is "
            "visible: call abort_transaction(), and do it again"
        )
        if self._unclear:
            self._keeps_files = True
            left = IndeterminateCommitError(
                f"it is not known whether the transaction of {self._config.transactional_id!r} is committed, and the "
                f"cluster cannot tell any more: {error}; look for its records in the log before you send them again, "
                "and call abort_transaction() to go on"
            )
        self._make_abortable(left)
        return left

    def _stop(self, error: SparklogError) -> NoReturn:
        """End this producer with an error that claims no more than is known."""
        stopped = error
        if self._unclear and isinstance(error, UnknownProducerIdError):  # what it committed is forgotten with its id
            stopped = IndeterminateCommitError(
                f"it is not known whether the transaction of {self._config.transactional_id!r} is committed, and the "
                f"cluster cannot tell any more: {error}; look for its records in the log before you send them again"
            )
        elif self._fences_itself and isinstance(error, ProducerFencedError):
            stopped = ProducerFencedError(
                f"{error} (or this producer's own earlier attempt to end its transaction, which had no answer, has "
                "raised the epoch)",
                **error.context,
            )
        if stopped is not error:
            stopped.__cause__ = error
        self._make_fatal(stopped)
        raise stopped

    def _unknown(self, error: SparklogError) -> IndeterminateCommitError:
        return IndeterminateCommitError(
            f"it is not known whether the transaction of {self._config.transactional_id!r} is committed: {error}; call "
            "commit_transaction() or abort_transaction() again to find out, or start another producer with this "
            "transactional id"
        )

    def _succeed(self, result: AppendResult) -> None:
        timestamp_ms = self._coordinator.state.timestamp_ms
        batches: list[PendingBatch] = []
        for entry, appended in zip(self._in_flight, result.appended, strict=True):
            assert entry.append is not None
            stamp = timestamp_ms if entry.append.log_append_time else -1
            set_offsets(entry.batches, appended.base_offset, stamp)
            batches += entry.batches
        self._identity = result.producer
        self._forget()
        self._enter(READY)
        self._metrics.committed(batches)
        self._accumulator.resolve(batches, None)

    def _make_abortable(self, error: SparklogError) -> None:
        self._unclear = False
        self._error = error
        self._enter(ABORTABLE_ERROR)
        self._fail_all(error)

    def _make_fatal(self, error: SparklogError) -> None:
        self._error = error
        self._enter(FATAL_ERROR)
        self._fail_all(error)

    def _fail_all(self, error: BaseException) -> None:
        self._accumulator.take()
        unfinished = list(self._accumulator.unfinished)
        self._metrics.failed(unfinished)
        self._accumulator.resolve(unfinished, error)

    def _drop(self, error: BaseException) -> None:
        self._fail_all(error)
        if not self._unclear and not self._keeps_files and self._state != FATAL_ERROR:
            delete_files(self._coordinator, [entry.append for entry in self._in_flight if entry.append is not None])
        self._forget()

    def _until_answered(
        self, action: Callable[[], Any], what: str, passes: Callable[[SparklogError], bool] = may_pass
    ) -> Any:
        """What ``action`` returns, tried again after failures that may pass, until ``max_block_ms`` are over."""
        deadline = self._clock.monotonic() + self._config.max_block
        while True:
            try:
                return action()
            except SparklogError as error:
                if not passes(error):
                    raise
                if self._clock.monotonic() >= deadline or not self._accumulator.pause(self._config.retry_backoff):
                    raise self._timed_out(what, error) from error
                logger.info("%s is tried again: %s", what, error)
                if isinstance(error, WriteRefusedError):
                    self._refresh()

    def _refresh(self) -> None:
        try:
            self._coordinator.refresh()
        except SparklogError as error:
            logger.info("the cluster cannot be read: %s", error)

    def _timed_out(self, what: str, error: SparklogError) -> KafkaTimeoutError:
        known = "whether it happened is not known" if self._unclear else "it did not happen"
        return KafkaTimeoutError(
            f"{what} of transactional id {self._config.transactional_id!r} did not get through within max_block_ms "
            f"({self._config.max_block * 1000:.0f}), {known}: {error}; mend the storage, then call it again"
        )


def may_be_written(error: SparklogError) -> bool:
    """Whether records that are in no file yet may be written when it is tried again, to other brokers if need be."""
    return isinstance(error, WriteRefusedError) or may_pass(error)


# -- offsets of groups


def group_commit(offsets: Mapping[Any, Any], group_metadata: object) -> GroupCommit:
    """The offsets of a group as the protocol takes them, from a group id or a consumer's ``group_metadata()``.

    Raises InvalidArgumentTypeError for what is neither, or no such mapping.
    """
    if isinstance(group_metadata, str):
        group, member, generation, instance = group_metadata, "", -1, ""
    elif getattr(group_metadata, "group_id", None) is not None:
        metadata: Any = group_metadata
        group, member, generation = metadata.group_id, metadata.member_id or "", metadata.generation_id
        instance = getattr(metadata, "group_instance_id", None) or ""
    else:
        raise InvalidArgumentTypeError(
            f"send_offsets_to_transaction() takes a group id or consumer.group_metadata(), not {group_metadata!r}"
        )
    validate_group_id(group)
    if generation > 0 and not member:
        raise InvalidArgumentError(
            f"invalid group metadata: generation {generation} of group {group!r} without a member id; give what "
            "consumer.group_metadata() gives, or the group id alone"
        )
    if not isinstance(offsets, Mapping):
        raise InvalidArgumentTypeError(
            f"send_offsets_to_transaction() takes a dict of TopicPartition to OffsetAndMetadata, not {offsets!r}"
        )
    positions = dict(_position(place, offset) for place, offset in offsets.items())
    return GroupCommit(group=group, offsets=positions, member=member, generation=generation, instance_id=instance)


def _position(place: Any, offset: Any) -> tuple[tuple[str, int], OffsetAndMetadata]:
    try:
        topic, partition = place
        if isinstance(offset, int) and not isinstance(offset, bool):
            return (topic, partition), OffsetAndMetadata(offset)
        epoch = getattr(offset, "leader_epoch", None)
        return (topic, partition), OffsetAndMetadata(
            offset.offset, offset.metadata or "", -1 if epoch is None else epoch
        )
    except (TypeError, ValueError, AttributeError) as error:
        raise InvalidArgumentTypeError(
            f"{place!r}: {offset!r} is not an offset to commit; give TopicPartition(topic, partition): "
            "OffsetAndMetadata(offset, metadata, leader_epoch)"
        ) from error
