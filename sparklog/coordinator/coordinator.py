"""The coordinator: takes requests, decides them against the newest state, and commits the decisions.

A coordinator has no state but that of the commit log, which arbitrates between coordinators; so any number of them may
exist in any number of processes, and one is cheap to discard.

Group commit: of the threads with pending requests, one takes all requests into one commit. On a local disk an advisory
lock keeps processes from racing in vain; elsewhere the losers of a race read the winning commit, decide again and retry
after a random back-off.
"""

from __future__ import annotations

import logging
import math
import os
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from itertools import count
from typing import Any, Generic, TypeVar
from weakref import WeakSet

import msgspec

from sparklog import limits
from sparklog.clock import Clock
from sparklog.coordinator.begun_files import WRITTEN_COUNTS_SECONDS, check_begun, check_still_there
from sparklog.coordinator.broker_stores import BrokerStores
from sparklog.errors import (
    CorruptMetadataError,
    DuplicateBrokerRegistrationError,
    IllegalStateError,
    IndeterminateCommitError,
    InvalidCallError,
    ObjectNotFoundError,
    SparklogError,
    StorageError,
    UnsupportedVersionError,
)
from sparklog.ids import Ids, RandomIds
from sparklog.log.broker_files import read_identity
from sparklog.log.commits.commit_attempt import CommitOutcome
from sparklog.log.commits.commit_log import CommitLog
from sparklog.log.commits.replaced_root import refuse_unlinked_timeline
from sparklog.log.creation import create_object
from sparklog.log.elapsed import ElapsedTime, Moment
from sparklog.log.layout import CLUSTER_KEY, COMMITS, commit_version, encode_cluster_file, exists
from sparklog.log.reserve import keep_reserve
from sparklog.log.segments import TopicSegments
from sparklog.log.settings import DEFAULTS, LogSettings
from sparklog.protocol import levels
from sparklog.protocol.commits import commit_key
from sparklog.protocol.decide.append import AppendRequest, AppendResult, decide_append
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.decide.groups import check_offset_changes
from sparklog.protocol.decide.topics import NewTopic, check_case, create_topic
from sparklog.protocol.features import check_written
from sparklog.protocol.fold import Draft
from sparklog.protocol.state import State
from sparklog.retry import commit_attempts
from sparklog.store.base import Store
from sparklog.store.conditional_write_probe import require_conditional_writes
from sparklog.store.enclosing import check_no_location, check_outside_locations
from sparklog.store.open import open_store
from sparklog.types import as_python

Result = TypeVar("Result", covariant=True)

logger = logging.getLogger(__name__)

GATHER_SECONDS = 0.01
"""How long a commit waits at most for requests that other threads are known to be about to make."""
_GATHER_POLL_SECONDS = 0.0005

MOST_LOOKS = 5
"""How often files are looked for before a commit, if each look was too long ago when it was decided."""

_READERS = count(1)


class _LookTooOldError(SparklogError):
    """So much time has passed since files were looked for that the root may have been restored."""


class _Request(Generic[Result]):
    """One caller's request and, once answered, its result or error."""

    def __init__(self, decide: Callable[[State], Decision[Result]]) -> None:
        self.decide = decide
        self.decision: Decision[Result] | None = None
        self.error: BaseException | None = None
        self.answered = False

    def answer(self) -> Result:
        if self.error is not None:
            raise self.error
        assert self.decision is not None
        return self.decision.result


class Coordinator:
    """Assigns offsets and changes topics for one cluster. Thread-safe.

    Every method that writes returns once its commit is durable. If it raises, nothing was written, except with
    IndeterminateCommitError: outcome unknown. All may raise StorageError, CommitConflictError, CorruptMetadataError.
    """

    def __init__(self, log: CommitLog, storage_options: Mapping[str, object] | None = None) -> None:
        self.log = log
        self.brokers = BrokerStores(log.store, log.clock, storage_options)
        self.pending: list[_Request[object]] = []
        self._waiting_lock = threading.Lock()
        self._committing = threading.Lock()
        self._process = os.getpid()
        self.elapsed = ElapsedTime(log.clock)
        """Gives the moments that ``append`` takes."""
        self.reader = f"{writer_name()}/{next(_READERS)}"
        """The name of this coordinator, for what it has read (``Begun``); another one gets another."""
        self._checked_at = -math.inf
        self._checking = threading.Lock()
        self.members: WeakSet[Any] = WeakSet()
        """The group members of this process, to acknowledge a rebalance in one commit; guarded by ``members_lock``."""
        self.members_lock = threading.Lock()

    @property
    def of_any_timeline(self) -> Coordinator:
        """The coordinator that goes on when its log leaves a timeline (``one_timeline``)."""
        return self

    @property
    def store(self) -> Store:
        return self.log.store

    @property
    def state(self) -> State:
        """The newest state read so far, without a request to the storage."""
        return self.log.state

    def store_of(self, broker: int) -> Store:
        """Return the store of a broker. Raises StorageError if the broker is not registered."""
        return self.brokers.store_of(self.log.state, broker)

    def refresh(self) -> State:
        """Read new commits and return the newest state."""
        self._check_process()
        return self.log.refresh()

    def was_checked_within(self, age: float) -> bool:
        """Return whether a check for new commits in this process has started within the last ``age`` seconds."""
        return self.log.clock.monotonic() - self._checked_at < age

    def claim_check(self, pause: float) -> bool:
        """Return whether the caller is to check for new commits now: no other did within about ``pause`` seconds."""
        with self._checking:
            if self.was_checked_within(pause * 0.9):
                return False
            self._checked_at = self.log.clock.monotonic()
            return True

    def segments(self, topic: str, state: State | None = None) -> TopicSegments:
        """Return the live segments of a topic at ``state``. Raises UnknownTopicOrPartitionError."""
        self._check_process()
        return self.log.segments(topic, state)

    # -- requests

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = 1,
        configs: Mapping[str, str] | None = None,
        assignment: Sequence[Sequence[int]] | None = None,
    ) -> str:
        """Create a topic and return its topic id. Raises as ``create_topic``."""
        new = NewTopic(
            name=name,
            topic_id=self.log.ids.topic_id(),
            partitions=as_python(partitions),
            replication_factor=as_python(replication_factor),
            configs=configs or {},
            assignment=assignment,
        )
        return self.submit(lambda state: create_topic(state, new, self.ignores_case))

    @cached_property
    def ignores_case(self) -> bool:
        """Whether the root is on a file system that does not tell names apart by their case, as on macOS and SMB."""
        return self.store.is_local and exists(self.store, CLUSTER_KEY.upper())

    def append(self, request: AppendRequest, written: Moment | None = None) -> AppendResult:
        """Make written runs part of the log, all or none. ``written`` is when this process began to write the first of
        their files, by ``elapsed``. Raises as ``decide_append`` and ``submit``, and RootReplacedError if another
        process wrote them in another timeline, or if they are gone."""
        if not request.begun and written is None:
            return self._append(request, partial(decide_append, request=request))
        for _ in range(MOST_LOOKS - 1):
            looked = self.elapsed.now()
            found = self._look_for_files(request, written)
            with suppress(_LookTooOldError):
                return self._append(found, partial(self._decide_soon, looked, found))
        found = self._look_for_files(request, written)  # storage so slow that a look tells no more
        return self._append(found, partial(decide_append, request=found))

    def _look_for_files(self, request: AppendRequest, written: Moment | None) -> AppendRequest:
        if not request.begun:
            seconds = math.inf if written is None else self.elapsed.seconds_since(written)
            return check_still_there(self.log, self.brokers.store_of, request, seconds)
        timeline = self.log.unlinked_jumps  # read first: after a later jump the check is worthless
        request = check_begun(self.log, self.brokers.store_of, request)
        timeline = timeline if request.timeline is None else request.timeline
        return msgspec.structs.replace(request, begun=(), timeline=timeline)

    def _decide_soon(self, looked: Moment, request: AppendRequest, state: State) -> Decision[AppendResult]:
        """Decide soon after files were looked for: a root that is restored while this process waits lacks them."""
        if self.elapsed.seconds_since(looked) > WRITTEN_COUNTS_SECONDS:
            raise _LookTooOldError("the files were looked for too long ago")
        return decide_append(state, request)

    def _append(self, request: AppendRequest, decide: Callable[[State], Decision[AppendResult]]) -> AppendResult:
        missing = [new for new in request.new_topics if new.name not in self.state.topics]
        for new in missing:
            if self.ignores_case:
                check_case(self.state, new.name)
        timelines = [request.timeline, *(commit.timeline for commit in request.groups)]
        result = self.submit(decide, timelines=timelines)
        for new in missing:
            warn_of_created_topic(new.name, new.partitions)
        return result

    # -- group commit

    def submit(
        self,
        decide: Callable[[State], Decision[Result]],
        others: int = 0,
        timelines: Sequence[int | None] = (),
    ) -> Result:
        """Decide and commit one request, together with all other pending ones, and return its result.

        ``decide`` is pure and may be called several times, each time with a newer state. ``others`` is how many more
        requests are about to come: the commit waits for them, ``GATHER_SECONDS`` at most. ``timelines`` are the log's
        ``unlinked_jumps`` of when the offsets, files and ids in the request were found; raises UnlinkedHistoryError
        once it has others.
        """
        self._check_process()
        request = _Request(partial(self._decide_in, timelines, decide) if timelines else decide)
        with self._waiting_lock:
            self.pending.append(request)
        with self._committing:
            if not request.answered:
                self._gather(1 + others)
                self._commit_waiting()
        return request.answer()

    def _decide_in(
        self, timelines: Sequence[int | None], decide: Callable[[State], Decision[Result]], state: State
    ) -> Decision[Result]:
        """Decide a request of these timelines; the log is locked, so its ``unlinked_jumps`` are those of ``state``."""
        if any(timeline not in (None, self.log.unlinked_jumps) for timeline in timelines):
            raise refuse_unlinked_timeline(
                self.store, "the producer id may belong to another producer, and offsets and files to other records"
            )
        return decide(state)

    def _check_process(self) -> None:
        """Refuse use in a forked child, whose locks and guarded data may be in use by threads it does not have."""
        if self._process != os.getpid():
            raise IllegalStateError(
                f"the cluster {self.store.root} was opened in another process; after a fork open it in the child"
            )

    def _gather(self, expected: int) -> None:
        """Wait briefly until ``expected`` requests are pending."""
        clock = self.log.clock
        deadline = clock.monotonic() + GATHER_SECONDS
        while len(self.pending) < expected and clock.monotonic() < deadline:
            clock.sleep(_GATHER_POLL_SECONDS)

    def _commit_waiting(self) -> None:
        """Commit all pending requests; afterwards each is answered, wherever an interrupt arrives."""
        requests: list[_Request[object]] = []
        try:
            with self._waiting_lock:
                requests, self.pending = self.pending, []
            self._commit(requests)
        except BaseException as error:
            self._answer_interrupted(requests, error)
            raise

    def _commit(self, requests: list[_Request[object]]) -> None:
        """Commit these requests; afterwards each is answered, whatever happened."""
        try:
            self._commit_until_won(requests)
        except InvalidCallError as error:
            if len(requests) == 1:
                requests[0].error = error
            else:  # too large for one commit, or one of them is invalid: try each alone
                self._commit_one_by_one(requests)
        except SparklogError as error:
            for request in requests:
                request.error = request.error or error
        except BaseException as error:  # such as KeyboardInterrupt: for this thread only, and others wait
            for request in requests:
                request.error = request.error or self._interrupted(error)
            raise
        finally:
            for request in requests:
                request.answered = True

    def _commit_one_by_one(self, requests: list[_Request[object]]) -> None:
        try:
            for request in requests:
                self._commit([request])
        except BaseException as error:
            self._answer_interrupted(requests, error)
            raise

    def _answer_interrupted(self, requests: Sequence[_Request[object]], error: BaseException) -> None:
        """Fail the unanswered requests: their decisions may be those of a commit that did not happen."""
        for request in requests:
            if not request.answered:
                request.error = self._interrupted(error)
                request.answered = True

    def _interrupted(self, error: BaseException) -> IndeterminateCommitError:
        interrupted = IndeterminateCommitError(
            f"outcome unknown: the thread that committed to {self.store.root} for several others ended with {error!r}; "
            "read the log again, or repeat the write with a producer id, which writes nothing twice",
            path=self.store.root,
        )
        interrupted.__cause__ = error
        return interrupted

    def _commit_until_won(self, requests: list[_Request[object]]) -> None:
        for _ in commit_attempts(self.log.clock, self.log.ids, self.store.root):
            with self.log.held, self.log.committing():
                self.log.refresh()
                draft = self.log.draft()
                _decide_together(draft, requests)
                if draft.is_empty:  # such as for a repetition of what is in the log
                    return self._make_durable(requests)
                check_offset_changes(draft.actions)
                require_conditional_writes(self.store, self.log.ids)
                if self.log.commit(draft) is CommitOutcome.WON:
                    return

    def _make_durable(self, requests: list[_Request[object]]) -> None:
        """Make durable what these requests find in the log. Raises IndeterminateCommitError."""
        if all(request.error for request in requests):
            return
        try:
            self.log.make_durable()
        except StorageError as error:
            raise IndeterminateCommitError(
                f"outcome unknown: commit {self.log.state.version} of {self.store.root}, or an earlier one, has what "
                f"was asked for, and may not last: {error.message}",
                path=error.path or self.store.root,
            ) from error


def warn_of_created_topic(topic: str, partitions: int) -> None:
    """Log that a write has created a topic: its name may be misspelt."""
    logger.warning(
        "topic %r did not exist and was created with %d partition%s, since auto.create.topics.enable is true; "
        "`sparklog topics --delete` deletes it if its name is misspelt",
        topic,
        partitions,
        "" if partitions == 1 else "s",
    )


def _decide_together(draft: Draft, requests: list[_Request[object]]) -> None:
    """Apply the actions of all requests, each decided on top of the previous ones; a failed one keeps its error."""
    state = draft.base
    for request in requests:
        request.error = request.decision = None
        try:
            request.decision = request.decide(state)
        except Exception as error:  # also a bug: it concerns that caller alone
            if not isinstance(error, SparklogError) and type(_find_error(request, state)) is not type(error):
                raise  # the handler of a signal, as of a time limit, has raised it: it is for this thread
            request.error = error
            continue
        draft.raise_level(request.decision.level)
        for action in request.decision.actions:
            draft.apply(action)
        if len(requests) > 1 and request.decision.actions:
            state = draft.finish(state.version, state.digest)


def _find_error(request: _Request[object], state: State) -> Exception | None:
    try:
        request.decide(state)
    except Exception as error:
        return error
    return None


# -- opening


def writer_name() -> str:
    """Return the writer's name in commits, host and process id, for people who read the log."""
    return f"{socket.gethostname()}/{os.getpid()}"


def create_cluster(
    root: str | Store,
    storage_options: Mapping[str, object] | None = None,
    clock: Clock | None = None,
    ids: Ids | None = None,
    settings: LogSettings = DEFAULTS,
    level: int = levels.CURRENT,
) -> Coordinator:
    """Create a cluster of a level at a URL or folder.

    Raises FeatureLevelError for a level that this version does not write, ClusterAlreadyExistsError,
    DuplicateBrokerRegistrationError in, or inside of, the location of a broker, UnsupportedStoreError, StorageError.
    """
    check_written(level)
    store = _to_store(root, storage_options)
    is_new = not exists(store, CLUSTER_KEY)
    if is_new:
        check_no_location(store)
        check_outside_locations(store)
    ids = ids or RandomIds()
    require_conditional_writes(store, ids)
    cluster_id = ids.topic_id()
    try:
        log = CommitLog.create(store, clock, ids, cluster_id, settings, level)
    finally:
        if is_new:
            _check_still_no_location(store, cluster_id)
    log.store = log.store.guarded_by(CLUSTER_KEY)
    keep_reserve(log.store)
    return Coordinator(log, storage_options)


def _check_still_no_location(store: Store, cluster_id: str) -> None:
    """Remove this new cluster if a broker's disk was mounted at its root after the first check, and raise. An older
    cluster stays: the folder of a replaced root is a location, too. So does one that is in use by now."""
    try:
        check_no_location(store)
    except DuplicateBrokerRegistrationError:
        with suppress(ObjectNotFoundError):
            data = store.get(CLUSTER_KEY)
            if data == encode_cluster_file(cluster_id) and not _is_in_use(store, cluster_id):
                _delete(store, CLUSTER_KEY, data)
                if _is_in_use(store, cluster_id):  # since that look; without the file nobody commits
                    create_object(store, CLUSTER_KEY, data, limits.MAX_CLUSTER_FILE_BYTES)
                else:
                    _delete(store, commit_key(0), store.get(commit_key(0)))
        raise


def _is_in_use(store: Store, cluster_id: str) -> bool:
    """Whether a new cluster has commits besides its first one, or was promoted elsewhere."""
    if any((commit_version(info.key) or 0) > 0 for info in store.list(COMMITS)):
        return True
    try:
        identity = read_identity(store)
    except (CorruptMetadataError, UnsupportedVersionError):
        return False
    return identity is not None and identity.cluster_id == cluster_id


def _delete(store: Store, key: str, data: bytes) -> None:
    if not store.delete_exactly(key, data):
        store.delete(key)


def open_cluster(
    root: str | Store,
    storage_options: Mapping[str, object] | None = None,
    clock: Clock | None = None,
    ids: Ids | None = None,
    settings: LogSettings = DEFAULTS,
) -> Coordinator:
    """Open an existing cluster. ``storage_options`` apply to the root, if given as an address, and to the brokers.

    Raises ClusterNotFoundError, UnsupportedStoreError, UnsupportedVersionError, CorruptMetadataError or StorageError.
    """
    store = _to_store(root, storage_options).guarded_by(CLUSTER_KEY)  # writes nothing below an unmounted root
    return Coordinator(CommitLog.open(store, clock, ids, writer_name(), settings), storage_options)


def _to_store(root: str | Store, storage_options: Mapping[str, object] | None) -> Store:
    return open_store(root, storage_options) if isinstance(root, str) else root
