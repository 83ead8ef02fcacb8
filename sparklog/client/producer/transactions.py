"""Transactions: records of any number of topics and offsets of any number of groups, published by one commit.

    producer.init_transactions()
    producer.begin_transaction()
    producer.send("orders", b"value")
    producer.send_offsets_to_transaction({TopicPartition("in", 0): OffsetAndMetadata(7)}, "group")
    producer.commit_transaction()

Records are collected in memory. When that is full, or on ``flush``, they are written to files, which are not visible.
The commit writes the rest and names all files in one commit. To abort, the files are deleted and nothing is committed.

Rules: the table below says in which states each step is allowed. A commit whose outcome is unknown is retried
unchanged, which the cluster answers with the first result; its files are kept until the outcome is known. An error that
the next transaction may not have makes this one abortable; a fenced producer is in a fatal state. After a jump to a
checkpoint that nothing links to what was read before (``CommitLog.unlinked_jumps``) the producer id may be another
producer's: the transaction becomes abortable, and the next one begins with another identity.

The steps run one after the other in a thread of their own, which no signal interrupts. A caller waits for its step for
``max_block_ms``: then, and after an interrupt (Ctrl-C, an alarm), the step goes on, and the next call comes after it. A
step that has not begun by then never runs. Thread-safe, as far as two callers make sense.

Not for: recognising own attempts at an epoch (``takeover``).
"""

from __future__ import annotations

import copy
import logging
import threading
import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn

import msgspec

from sparklog.client.deadlines import InOrder
from sparklog.client.producer.in_flight import PartitionBatches, batches_of, oldest_of
from sparklog.client.producer.sender_base import SEQUENCES, SenderBase, unwritten_by_topic
from sparklog.client.producer.takeover import Takeover
from sparklog.config.cluster_configs import ClusterConfig
from sparklog.coordinator.begun_files import describe_instead, find_digest
from sparklog.coordinator.kept_reading import start_reading
from sparklog.errors import (
    IllegalStateError,
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
    UnlinkedHistoryError,
    WriteRefusedError,
)
from sparklog.log.commits.replaced_root import refuse_replaced_root, refuse_unlinked_timeline
from sparklog.protocol.decide.append import AppendRequest, AppendResult, Begun
from sparklog.protocol.decide.groups import GroupCommit, merge_offsets, topic_ids
from sparklog.protocol.decide.producers import ProducerIdentity
from sparklog.protocol.names import validate_group_id
from sparklog.retry import is_transient, retry
from sparklog.types import OffsetAndMetadata, as_python, whole

logger = logging.getLogger(__name__)

UNINITIALIZED = "UNINITIALIZED"
READY = "READY"
IN_TRANSACTION = "IN_TRANSACTION"
COMMITTING = "COMMITTING_TRANSACTION"
ABORTABLE_ERROR = "ABORTABLE_ERROR"
FATAL_ERROR = "FATAL_ERROR"

COMMIT = "commit_transaction()"
ABORT = "abort_transaction()"

_ALLOWED = {
    "init_transactions": frozenset({UNINITIALIZED, READY}),
    "begin_transaction": frozenset({READY}),
    "send_offsets_to_transaction": frozenset({IN_TRANSACTION}),
    "commit_transaction": frozenset({IN_TRANSACTION, COMMITTING}),
    "abort_transaction": frozenset({IN_TRANSACTION, COMMITTING, ABORTABLE_ERROR}),
}
"""The states in which each step is allowed. ``send`` is allowed in IN_TRANSACTION alone."""

_HINTS = {
    UNINITIALIZED: "call init_transactions() first",
    READY: "call begin_transaction() first",
    IN_TRANSACTION: "call commit_transaction() or abort_transaction() first",
    COMMITTING: "the outcome of its commit is unknown: call commit_transaction() again, or abort_transaction()",
}

_FATAL = (ProducerFencedError, UnknownProducerIdError, OutOfOrderSequenceNumberError)


ANSWER_SECONDS = 0.5
"""seconds after ``max_block_ms`` at which a caller stops waiting for a step, which then waits for the storage."""


@dataclass(eq=False, slots=True)
class _Transaction:
    """What belongs to one transaction. It is replaced as a whole.

    ``groups`` has the offsets by the identity of the consumer, and its generation, that added them. ``requested`` is
    what was asked of the cluster while its outcome is unknown, with the producer's identity at that time: asking again
    with another one would not find it. ``fences_itself``: an attempt to end it by a new epoch has an unknown outcome.
    ``keeps_files``: they may be in the log, and that can never be known.
    """

    began: float = 0.0
    in_flight: list[PartitionBatches] = field(default_factory=list)
    groups: dict[Hashable, GroupCommit] = field(default_factory=dict)
    requested: AppendRequest | None = None
    fences_itself: bool = False
    keeps_files: bool = False


class Transactions(SenderBase):
    """The transactions of one producer. Thread-safe: one step at a time."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._lock = threading.RLock()
        self._takeover = Takeover(self._coordinator, self._config.transactional_id)
        self._identity: ProducerIdentity | None = None
        self._exhausted: ProducerIdentity | None = None
        """The identity of the last transaction, if its producer id has no epochs left."""
        self._timeline = 0
        self._compared: tuple[Begun, int] | None = None
        """Up to which commit a consumer of another coordinator had read when it was compared last, and the timeline."""
        self._error: SparklogError | None = None
        self._calls = InOrder("sparklog-transactions", self._accumulator.lock)
        self._stepping = 0
        """The thread that runs a step, 0 for none."""
        self._left: list[Callable[[], None]] = []
        """What was asked for in the middle of a step, and is done after it."""
        self._unreported = ""
        """The step that ended a transaction without its caller having learnt that: it was interrupted or timed out."""
        self._transaction = _Transaction()
        self._end_reading: Callable[[], None] | None = None
        self._enter(UNINITIALIZED)
        self._accumulator.make_room = self.write
        self._accumulator.in_transaction = True

    def _step(self, action: Callable[[], None], what: str, seconds: float | None = None) -> None:
        """Run a step after the earlier ones, and wait for it. Raises KafkaTimeoutError after ``seconds``, by default
        ``max_block_ms``; a step that has begun goes on. Raises IllegalStateError within a step."""
        if self._stepping == threading.get_ident():
            raise IllegalStateError(
                f"{what} in a callback would wait for the step of transactional id "
                f"{self._config.transactional_id!r} that runs the callback: call it in another thread, or afterwards"
            )

        def run() -> None:
            with self._lock:
                self._stepping = threading.get_ident()
                try:
                    action()
                finally:
                    self._do_left()

        if self._calls.runs_here:  # the garbage collector closes the producer between two steps
            return run()
        seconds = self._config.max_block + ANSWER_SECONDS if seconds is None else seconds
        self._calls.call_within(seconds, run, f"{what} of transactional id {self._config.transactional_id!r}")

    def _do_left(self) -> None:
        try:
            while self._left:
                self._left.pop()()
        finally:
            self._stepping = 0

    # -- steps

    def init(self) -> None:
        """Initialize the transactional id and fence older producers. Idempotent.

        Raises InvalidTransactionTimeoutError if ``transaction_timeout_ms`` is over ``transaction.max.timeout.ms``,
        KafkaTimeoutError after ``max_block_ms``.
        """
        self._step(self._init, "init_transactions()")

    def _init(self) -> None:
        self._check("init_transactions")
        if self._identity is None:
            self._identify("init_transactions()")
            # A transaction may be open for longer than commits are kept, while the program computes.
            self._end_reading = start_reading(self._coordinator)
            weakref.finalize(self, self._end_reading)
        self._enter(READY)

    def _identify(self, what: str) -> None:
        timeline = self._coordinator.log.unlinked_jumps  # read first: after a later jump the identity is renewed
        self._identity = self._retry_until_deadline(self._take_over, what)
        self._timeline = timeline

    def _take_over(self) -> ProducerIdentity:
        """Return an identity; raise if, according to the log, a newer producer has fenced this one."""
        current = self._identity
        if current is not None:
            state = self._coordinator.refresh()
            producer_id = state.indexes.transactional_ids.get(self._config.transactional_id)
            if producer_id == current.producer_id and state.producers[producer_id].epoch >= current.producer_epoch:
                return self._fence()
        return self._init_producer(None if current is not None else self._exhausted)

    def _init_producer(self, present: ProducerIdentity | None = None) -> ProducerIdentity:
        limit = ClusterConfig.resolve(self._coordinator.refresh().configs).transaction_max_timeout_ms
        if self._config.transaction_timeout * 1000 > limit:
            raise InvalidTransactionTimeoutError(
                f"Producer(transaction_timeout_ms={self._config.transaction_timeout * 1000:.0f}) is over the cluster's "
                f"transaction.max.timeout.ms, {limit}; lower it, or raise the cluster's limit",
                config="transaction_timeout_ms",
            )
        with self._metrics.requests.at_root():
            return self._takeover.take(present)

    def begin(self) -> None:
        """Begin a transaction. Raises InvalidTxnStateError."""
        self._step(self._begin, "begin_transaction()")

    def _begin(self) -> None:
        self._check("begin_transaction")
        if self._identity is None or self._timeline != self._coordinator.log.unlinked_jumps:
            try:  # the previous id has no epochs left, or may be another producer's
                self._identify("begin_transaction()")
            except _FATAL as error:
                self._stop(error)
        self._unreported, self._sequences = "", {}
        self._transaction = _Transaction(self._clock.monotonic())
        self._enter(IN_TRANSACTION)

    def add_offsets(self, offsets: Mapping[Any, Any], group_metadata: object) -> None:
        """Commit these offsets with the transaction. Raises InvalidTxnStateError, InvalidArgumentTypeError,
        TransactionAbortedError for those of a consumer that has read another timeline of the log than this producer."""
        self._step(partial(self._add_offsets, offsets, group_metadata), "send_offsets_to_transaction()")

    def _add_offsets(self, offsets: Mapping[Any, Any], group_metadata: object) -> None:
        self._check("send_offsets_to_transaction")
        commit, groups = group_commit(offsets, group_metadata, self._coordinator.reader), self._transaction.groups
        if commit.offsets and commit.timeline is None and getattr(group_metadata, "timeline", None) is not None:
            self._check_timeline(getattr(group_metadata, "read_up_to", None))
        known = topic_ids(self._coordinator.state, commit.offsets)  # a group id alone brings none
        commit = msgspec.structs.replace(commit, topic_ids={**known, **commit.topic_ids})
        key = (commit.group, commit.member, commit.generation, commit.instance_id)  # each is checked by itself
        if key in groups:
            commit = merge_offsets(groups[key], commit)
        if commit.offsets:
            groups[key] = commit

    def _check_timeline(self, read_up_to: Begun | None) -> None:
        """Check that a consumer of another coordinator, which has read up to this commit, has read this log; if not,
        make the transaction abortable: other records may be before its offsets. A later jump ends the transaction."""
        if read_up_to is not None and (read_up_to, self._timeline) == self._compared:
            return
        log = self._coordinator.log
        what = "offsets of its consumer may be those of other records (if it goes on, take its group_metadata() again)"
        try:
            if read_up_to is None:  # the consumer's log has left it
                raise refuse_unlinked_timeline(log.store, what)
            stored = self._retry_until_deadline(partial(find_digest, log, read_up_to), "send_offsets_to_transaction()")
            if stored is None:  # removed: nothing tells whether this log had it
                raise refuse_unlinked_timeline(log.store, what)
            if stored != read_up_to.digest:
                why = f"{what}, read up to commit {read_up_to.version}, and {describe_instead(stored)}"
                raise refuse_replaced_root(log.store, why)
        except KafkaTimeoutError:
            raise  # it may be called again
        except SparklogError as error:
            raise self._leave_timeline(error) from error
        self._compared = (read_up_to, self._timeline)

    def write(self, seconds: float | None = None) -> None:
        """Write the records in memory to files, which are not visible yet. Does nothing outside a transaction.

        Any exception of a write makes the transaction abortable. Raises KafkaTimeoutError after ``seconds``, by default
        ``max_block_ms``; writing goes on.
        """
        self._step(self._write_records, "writing records", seconds)

    def _write_records(self) -> None:
        if self._state not in (IN_TRANSACTION, COMMITTING) or self._outcome_unknown:
            return  # the records of a requested commit are in files already
        try:
            self._write_taken()
        except SparklogError as error:
            self._make_abortable(error)
            raise
        except BaseException as error:
            self._make_abortable(self._incomplete(repr(error)))
            raise

    def commit(self) -> None:
        """Publish the whole transaction in one commit.

        Raises KafkaTimeoutError after ``max_block_ms`` without an answer, IndeterminateCommitError if the storage
        refuses to tell the outcome: call it again, unless the message says that the cluster can no longer tell. After
        every other error nothing is visible, and ``abort`` recovers unless the producer is fenced.
        """
        self._step(self._commit, COMMIT)
        self._unreported = ""

    def _commit(self) -> None:
        if self._state == READY and self._unreported == COMMIT:
            return None  # an earlier call was interrupted or timed out, and its commit succeeded
        self._check("commit_transaction")
        if self._state == IN_TRANSACTION:
            self._check_age()
            self._enter(COMMITTING)
        for batch in list(self._accumulator.unfinished):
            batch.in_transaction = False
        self._write_records()
        if not self._transaction.in_flight and not self._transaction.groups:
            self._unreported = COMMIT
            return self._enter(READY)
        try:
            result = self._retry_until_deadline(self._append, "commit_transaction()")
        except KafkaTimeoutError:
            raise  # the same commit may be retried
        except UnlinkedHistoryError as error:
            raise self._leave_timeline(error) from error
        except SparklogError as error:
            is_own_fence = self._transaction.fences_itself and isinstance(error, ProducerFencedError)
            if isinstance(error, _FATAL) and not is_own_fence:
                self._stop(error)
            settled = self._settle("commit_transaction()") if self._outcome_unknown else None
            if settled is None:
                if is_own_fence:
                    superseded = self._superseded(error)
                    self._make_abortable(superseded)
                    raise superseded from error
                self._make_abortable(error)
                raise
            result = settled
        return self._succeed(result)

    def abort(self) -> None:
        """Abort the transaction: nothing of it was or will be visible.

        After a commit whose outcome is unknown, determine the outcome: raises InvalidTxnStateError if it is in the log,
        and KafkaTimeoutError or IndeterminateCommitError while the outcome stays unknown.
        """
        self._step(self._abort, ABORT)
        self._unreported = ""

    def _abort(self) -> None:
        if self._state == READY and self._unreported == ABORT:
            return  # an earlier call was interrupted or timed out, and succeeded
        if self._state == READY and self._unreported == COMMIT:
            raise self._is_committed()
        self._check("abort_transaction")
        if self._outcome_unknown:
            self._ensure_not_committed()
        aborted = TransactionAbortedError("the transaction was aborted")
        if self._state != ABORTABLE_ERROR:  # before anything is dropped: what is left must not be committed
            self._error = aborted
            self._enter(ABORTABLE_ERROR)
        self._drop(aborted)
        self._unreported = ABORT
        self._enter(READY)

    def refuse_record(self, error: KafkaError) -> None:
        """Make the open transaction abortable: one of its records was refused."""
        self._step(partial(self._refuse_record, error), "send()")

    def _refuse_record(self, error: KafkaError) -> None:
        if self._state == IN_TRANSACTION:
            self._make_abortable(error)

    def close(self, error: BaseException, seconds: float | None = None) -> None:
        """Fail uncommitted records, and delete their files unless they may be committed.

        Raises KafkaTimeoutError after ``seconds``, by default ``max_block_ms``; the files are then left for a vacuum.
        """
        drop = partial(self._close, error)
        try:
            if self._stepping == threading.get_ident():
                # A callback calls it, or the garbage collector, which runs in any thread: what the step is about to
                # commit must not be deleted.
                self._left.append(drop)
            else:
                self._step(drop, "close()", seconds)
        finally:
            if self._end_reading is not None:
                self._end_reading()
            self._calls.end()

    def _close(self, error: BaseException) -> None:
        self._drop(error)
        if (
            self._state != FATAL_ERROR
        ):  # a call that a handler of a signal has interrupted to close the producer goes on
            self._error = IllegalStateError("the producer is closed; create another one")
            self._enter(FATAL_ERROR)

    # -- parts of the steps

    def _ensure_not_committed(self) -> None:
        """Determine the outcome of the last commit; raise unless nothing of it is committed."""
        result = self._settle("abort_transaction()")
        if result is not None:
            self._succeed(result)
            raise self._is_committed()
        self._transaction.requested = None

    def _is_committed(self) -> InvalidTxnStateError:
        return InvalidTxnStateError(
            f"the transaction of {self._config.transactional_id!r} cannot be aborted: it is committed, by an "
            "earlier commit_transaction() whose answer was lost; its records are in the log, and "
            "begin_transaction() begins the next transaction"
        )

    @property
    def _outcome_unknown(self) -> bool:
        return self._transaction.requested is not None

    def _check(self, step: str) -> None:
        if self._state not in _ALLOWED[step]:
            raise self._refusal(step, InvalidTxnStateError)

    def _refusal(self, step: str, kind: type[SparklogError]) -> SparklogError:
        """Return the error of a step in this state; it is of this kind unless an earlier error refuses the step."""
        if self._error is None:
            return kind(
                f"{step}() of transactional id {self._config.transactional_id!r} in state {self._state}: "
                f"{_HINTS[self._state]}"
            )
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
        return self._refusal("send", TransactionStateError)

    def _check_age(self) -> None:
        age = self._clock.monotonic() - self._transaction.began
        if age > self._config.transaction_timeout:
            error = _aborted(
                f"the transaction of {self._config.transactional_id!r} began {age:.1f} s ago, and "
                f"transaction_timeout_ms is {self._config.transaction_timeout * 1000:.0f}"
            )
            self._make_abortable(error)
            raise error

    def _incomplete(self, why: str) -> TransactionAbortedError:
        return _aborted(f"records of the transaction of {self._config.transactional_id!r} were not written ({why})")

    def _write_taken(self) -> None:
        self._transaction.in_flight += [PartitionBatches(*partition) for partition in self._accumulator.take()]
        in_flight = [entry for entry in self._transaction.in_flight if entry.append is None]
        self._retry_until_deadline(lambda: self._write(in_flight), "writing records of a transaction", may_be_written)
        self._accumulator.release(batches_of(in_flight))

    def _write(self, in_flight: Sequence[PartitionBatches]) -> None:
        assert self._identity is not None
        for topic, unwritten in unwritten_by_topic(in_flight).items():
            began = self._coordinator.elapsed.now()
            self._write_topic(topic, unwritten, self._identity)
            for entry in unwritten:
                entry.written = began
                append = entry.append
                assert append is not None
                self._sequences[entry.topic_partition] = (append.base_sequence + append.run.records) % SEQUENCES
                for batch in entry.batches:
                    batch.columns = None

    def _append(self) -> AppendResult:
        """Append the transaction. Unless an error says that nothing was written, the outcome is unknown.

        While it is unknown, the same request is repeated, with the identity that it had.
        """
        transaction = self._transaction
        before = transaction.requested
        request = self._make_request() if before is None else before
        transaction.requested = request  # also if this is interrupted
        try:
            with self._metrics.requests.at_root():
                return self._coordinator.append(request, oldest_of(transaction.in_flight))
        except SparklogError as error:
            if not isinstance(error, IndeterminateCommitError):
                transaction.requested = before
            raise

    def _make_request(self) -> AppendRequest:
        in_flight, groups = self._transaction.in_flight, self._transaction.groups
        appends = [entry.append for entry in in_flight if entry.append is not None]
        missing = self._accumulator.unfinished.difference(batches_of(in_flight))
        if len(appends) < len(in_flight) or any(batch.rows for batch in missing):
            raise self._incomplete("writing them was interrupted")  # offsets are not committed without their records
        return AppendRequest(
            appends=appends, groups=list(groups.values()), transaction=self._identity, timeline=self._timeline
        )

    def _settle(self, what: str) -> AppendResult | None:
        """Determine the outcome of an unanswered attempt after a later one was refused.

        Returns its result, None if nothing of it is committed. A new epoch makes that certain: its commit takes the
        version that a stalled attempt could still have won. A newer producer that has taken over in the meantime is not
        fenced by this. If the storage keeps failing, the outcome stays unknown: raises IndeterminateCommitError, or
        KafkaTimeoutError.
        """
        next_identity: ProducerIdentity | None = None
        fenced: SparklogError | None = None
        try:
            next_identity = self._retry_until_deadline(self._fence, what)
        except _FATAL as error:
            fenced = error
        except KafkaTimeoutError:
            raise
        except SparklogError as error:
            raise self._indeterminate(error) from error
        try:
            result: AppendResult | None = self._retry_until_deadline(self._append, what)
        except UnlinkedHistoryError as error:
            raise self._leave_timeline(error) from error
        except UnknownProducerIdError as error:
            self._stop(error)
        except _FATAL:
            result = None
        except KafkaTimeoutError:
            raise
        except SparklogError as error:
            raise self._indeterminate(error) from error
        if fenced is None:
            self._end_identity(next_identity)
            return None if result is None else result._replace(producer=next_identity)
        if result is None:
            self._stop(fenced)
        return result

    def _end_identity(self, following: ProducerIdentity | None) -> None:
        """Take the identity of the next transaction; None if the producer id has no epochs left."""
        if following is not None:
            self._exhausted = None
        elif self._identity is not None:  # else this is repeated after an interrupt
            self._exhausted = self._identity
        self._identity = following

    def _fence(self) -> ProducerIdentity:
        """Return the next epoch. If the outcome is unknown, a later attempt recognises the epoch as its own."""
        transaction = self._transaction
        before, transaction.fences_itself = transaction.fences_itself, True
        try:
            return self._init_producer(self._identity)
        except SparklogError as error:
            if not isinstance(error, IndeterminateCommitError):
                transaction.fences_itself = before
            raise

    def _superseded(self, error: SparklogError) -> TransactionAbortedError:
        """Return the error of a transaction that can never be committed: its producer's next epoch is stored."""
        return TransactionAbortedError(
            f"the transaction of {self._config.transactional_id!r} is not committed: it was given up while the storage "
            f"did not answer ({error}); call abort_transaction(), then repeat the transaction"
        )

    def _leave_timeline(self, error: SparklogError) -> SparklogError:
        """Make the transaction abortable: in the timeline now loaded its producer id may be another producer's."""
        left: SparklogError
        if self._outcome_unknown:
            self._transaction.keeps_files = True
            left = self._never_known(error, ", and call abort_transaction() to continue")
        else:
            left = _aborted(f"the transaction of {self._config.transactional_id!r} cannot be committed: {error}")
        self._make_abortable(left)
        return left

    def _stop(self, error: SparklogError) -> NoReturn:
        """Make the error fatal and raise it, reworded if it would claim more than is known."""
        stopped = error
        if self._outcome_unknown and isinstance(error, UnknownProducerIdError):  # its commits expired with the id
            stopped = self._never_known(error)
        elif self._transaction.fences_itself and isinstance(error, ProducerFencedError):
            stopped = ProducerFencedError(
                f"{error} (or this producer's own earlier attempt to end its transaction, whose answer was lost, has "
                "raised the epoch)",
                **error.context,
            )
        if stopped is not error:
            stopped.__cause__ = error
        self._fail_in(FATAL_ERROR, stopped)
        raise stopped

    def _indeterminate(self, error: SparklogError) -> IndeterminateCommitError:
        return IndeterminateCommitError(
            f"it is not known whether the transaction of {self._config.transactional_id!r} is committed: {error}; call "
            "commit_transaction() or abort_transaction() again to find out, or start another producer with this "
            "transactional id"
        )

    def _never_known(self, error: SparklogError, then: str = "") -> IndeterminateCommitError:
        return IndeterminateCommitError(
            f"it is not known whether the transaction of {self._config.transactional_id!r} is committed, and the "
            f"cluster can no longer tell: {error}; look for its records in the log before you send them again{then}"
        )

    def _succeed(self, result: AppendResult) -> None:
        """Resolve the futures, then end the transaction. Until that is done the request stays, to be repeated."""
        in_flight = self._transaction.in_flight
        self._set_results(in_flight, result)
        self._resolve(batches_of(in_flight))
        self._end_identity(result.producer)
        self._unreported = COMMIT
        self._enter(READY)
        self._transaction = _Transaction()

    def _make_abortable(self, error: SparklogError) -> None:
        self._transaction.requested = None
        self._fail_in(ABORTABLE_ERROR, error)

    def _fail_in(self, state: str, error: SparklogError) -> None:
        self._error = error
        self._enter(state)
        self._fail_all(error)

    def _fail_all(self, error: BaseException) -> None:
        self._accumulator.take()
        self._resolve(list(self._accumulator.unfinished), error)

    def _drop(self, error: BaseException) -> None:
        self._fail_all(error)
        transaction = self._transaction
        if not self._outcome_unknown and not transaction.keeps_files and self._state != FATAL_ERROR:
            self.discard_files(transaction.in_flight)
        self._transaction = _Transaction()

    def _retry_until_deadline(
        self, action: Callable[[], Any], what: str, is_retriable: Callable[[Exception], bool] = is_transient
    ) -> Any:
        """Return the result of ``action``; retry it after transient failures until ``max_block_ms`` has passed."""
        deadline = self._clock.monotonic() + self._config.max_block

        def pauses() -> Iterator[float]:
            while self._clock.monotonic() < deadline and self._accumulator.pause(self._config.retry_backoff):
                yield 0.0  # the accumulator has paused, which closing it ends

        retries = 0

        def note(error: Exception) -> None:
            nonlocal retries
            retries += 1
            logger.log(logging.WARNING if retries == 1 else logging.INFO, "retrying %s after: %s", what, error)
            if isinstance(error, WriteRefusedError):
                self._refresh()

        try:
            return retry(action, self._clock, pauses(), is_retriable, note)
        except SparklogError as error:
            if not is_retriable(error):
                raise
            raise self._timed_out(what, error) from error

    def _timed_out(self, what: str, error: SparklogError) -> KafkaTimeoutError:
        outcome = "its outcome is unknown" if self._outcome_unknown else "it had no effect"
        return KafkaTimeoutError(
            f"{what} of transactional id {self._config.transactional_id!r} did not succeed within max_block_ms "
            f"({self._config.max_block * 1000:.0f}), {outcome}: {error}; when the storage works again, call it again"
        )


def _aborted(what: str) -> TransactionAbortedError:
    return TransactionAbortedError(
        f"{what}; nothing of it is visible: call abort_transaction(), then repeat the transaction"
    )


def may_be_written(error: Exception) -> bool:
    """Return whether writing records that are in no file yet may be retried, to other brokers if needed."""
    return isinstance(error, WriteRefusedError) or is_transient(error)


# -- offsets of groups


def group_commit(offsets: Mapping[Any, Any], group_metadata: Any, reader: str) -> GroupCommit:
    """Return the offsets of a group as a protocol action; the group is an id or a consumer's ``group_metadata()``.

    The timeline of the consumer counts if its coordinator is the producer's, ``reader``, as in one process.

    Raises InvalidArgumentTypeError for other types of group or offsets, InvalidArgumentError for a generation without a
    member id.
    """
    if isinstance(group_metadata, str):
        group, member, generation, instance = group_metadata, "", -1, ""
    elif getattr(group_metadata, "group_id", None) is not None:
        group, member = group_metadata.group_id, group_metadata.member_id or ""
        generation, instance = group_metadata.generation_id, getattr(group_metadata, "group_instance_id", None) or ""
    else:
        raise InvalidArgumentTypeError(
            f"send_offsets_to_transaction() takes a group id or consumer.group_metadata(), not {group_metadata!r}"
        )
    validate_group_id(group)
    if generation > 0 and not member:
        raise InvalidArgumentError(
            f"invalid group metadata: generation {generation} of group {group!r} without a member id; give "
            "consumer.group_metadata(), or the group id alone"
        )
    if not isinstance(offsets, Mapping):
        raise InvalidArgumentTypeError(
            f"send_offsets_to_transaction() takes a dict of TopicPartition to OffsetAndMetadata, not {offsets!r}"
        )
    is_shared = getattr(group_metadata, "reader", "") == reader
    positions = dict(_position(topic_partition, offset) for topic_partition, offset in offsets.items())
    return GroupCommit(
        group=group,
        offsets=positions,
        member=member,
        generation=generation,
        instance_id=instance,
        topic_ids=getattr(group_metadata, "topic_ids", {}),
        timeline=getattr(group_metadata, "timeline", None) if is_shared else None,
    )


def _position(topic_partition: Any, offset: Any) -> tuple[tuple[str, int], OffsetAndMetadata]:
    try:
        topic, partition = topic_partition
        if whole(offset) is not None:
            offset = OffsetAndMetadata(offset)
        epoch = getattr(offset, "leader_epoch", None)
        return (topic, as_python(partition)), OffsetAndMetadata(
            as_python(offset.offset), offset.metadata or "", -1 if epoch is None else as_python(epoch)
        )
    except (TypeError, ValueError, AttributeError) as error:
        raise InvalidArgumentTypeError(
            f"invalid offset {offset!r} of {topic_partition!r}: give TopicPartition(topic, partition): "
            "OffsetAndMetadata(offset, metadata, leader_epoch)"
        ) from error
