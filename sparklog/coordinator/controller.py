"""The controller: the coordinator that checks the storage locations and elects leaders for partitions of failed ones.

It holds the lease ``leases/controller``, which it renews at every pass. Another coordinator that saw the lease
unchanged for ``broker.session.timeout.ms``, by its own monotonic clock, takes over with the next controller epoch, in a
commit; commits of a controller with a lower epoch are refused from then on. Two processes that both think they are the
controller are therefore harmless.

A pass checks every location and commits all consequences together: brokers that went offline or came back, the ISRs
they leave, the new leaders. A location that does not answer is tried ``CHECK_TRIES`` times, or for
``broker.heartbeat.interval.ms``; one that answers but is unusable fails immediately. One that lets a call wait for
``broker.session.timeout.ms``, a read or a write, has no answer, and is not asked again before that call has ended: what
it stores late precedes the next check. So new leaders are elected in the first pass after a location is lost. That is
a limit for each call: a slow location, which takes seconds for each, passes its check.

Rules: driven from outside, one pass at a time; no threads. Nothing depends on a live controller: appends elect leaders
too, and reads need none. Before an unclean election the replicas in sync are asked once more: a process that was
suspended holds old findings.
Not for: copying missing files of a replica (``maintenance.replicas.replication``).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from sparklog.config.cluster_configs import ClusterConfig
from sparklog.coordinator.broker_probes import BrokerProbes, run_beside
from sparklog.coordinator.closed_root import ROOT_BROKER, close_root
from sparklog.coordinator.coordinator import Coordinator, writer_name
from sparklog.coordinator.health import BrokerFinding, Health, check_location, note_check
from sparklog.coordinator.leases import LeaseWatch
from sparklog.coordinator.one_timeline import one_timeline
from sparklog.coordinator.ownership import (
    broker_store,
    describe_other_address,
    examine_owner,
    may_claim,
    renew_owner,
    session_timeout_seconds,
)
from sparklog.coordinator.removals import end_removals
from sparklog.coordinator.unclean_election import UncleanSearch, waiting_for_unclean_election
from sparklog.errors import (
    ClusterMovedError,
    ControllerMovedError,
    EligibleLeadersNotAvailableError,
    InvalidCallError,
    PolicyViolationError,
    SparklogError,
    StoragePermissionError,
    StorageUnavailableError,
)
from sparklog.log.broker_files import LatestCheck, read_identity
from sparklog.log.elapsed import ElapsedTime, Moment
from sparklog.log.owner_files import read_former_roots, read_root
from sparklog.protocol import levels
from sparklog.protocol.decide import brokers as decide_brokers
from sparklog.protocol.decide import elections
from sparklog.protocol.decide.decision import Decision, ErrorByPartition
from sparklog.protocol.decide.elections import CheckedBrokers, UncleanElection
from sparklog.protocol.decide.ownership import RootIdentity
from sparklog.protocol.state import State
from sparklog.retry import pause_after
from sparklog.types import TopicPartition

logger = logging.getLogger(__name__)

LEASE_KEY = "leases/controller"

CHECK_TRIES = 3
"""tries without an answer after which a location counts as failed."""

RETRY_SECONDS = 0.1
"""seconds of the pause after the first try; it doubles."""

RENEW_SECONDS = 60.0
"""seconds between two owner records of a location: what an older copy of the root, put in its place, cannot know."""

LOOKS_LAST = 3
"""session timeouts after which what a look at locations has found is not acted upon."""

_POLL_SECONDS = 0.25


class ControllerLease(msgspec.Struct, frozen=True):
    """The stored lease: ``beat`` counts up; ``controller`` and ``time_ms`` (by its clock) are for people."""

    controller: str
    epoch: int
    beat: int
    time_ms: int


class ControllerPass(NamedTuple):
    """The result of one pass. ``epoch`` is 0 if another coordinator is the controller: then nothing was checked."""

    epoch: int
    findings: Sequence[BrokerFinding] = ()
    elected: Sequence[TopicPartition] = ()
    unclean: Sequence[TopicPartition] = ()
    preferred: Sequence[TopicPartition] = ()


class Controller:
    """A candidate controller, and the controller once it holds the lease. Not thread-safe."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.coordinator = coordinator
        self.name = f"{writer_name()}/{coordinator.log.ids.write_id()}"
        self.epoch = 0
        """Its controller epoch; 0 while it is not the controller."""
        self._clock = coordinator.log.clock
        self._beat = 0
        self._renew_at = -math.inf
        self._checks = 0
        self._root_epoch = 0
        self._elapsed = ElapsedTime(self._clock)
        self._watch = LeaseWatch(coordinator.store, self._clock)
        self._balanced_at = self._clock.monotonic()
        self._renewed_at: dict[int, float] = {}
        self._probes = BrokerProbes()

    # -- the lease

    def take_over(self, wait: bool = False) -> bool:
        """Become the controller if this was it, there is none, or its lease has expired; return whether this is it now.

        ``wait`` watches the lease for as long as its expiry takes, for callers that run a single pass. Raises
        StorageError.
        """
        if self._try_to_take_over():
            return True
        deadline = self._clock.monotonic() + self._timeout_seconds() + 2 * _POLL_SECONDS
        while wait and self._clock.monotonic() < deadline:
            self._clock.sleep(_POLL_SECONDS)
            if self._try_to_take_over():
                return True
        return False

    def _try_to_take_over(self) -> bool:
        current = self.coordinator.refresh().controller
        if current.controller == self.name:  # also if the response to its election was lost
            self.epoch = current.epoch
            self._renew()
            return True
        self.epoch = 0
        if current.epoch and not self._is_silent():
            return False
        try:
            self.epoch = self.coordinator.submit(
                lambda state: decide_brokers.elect_controller(state, self.name, current.epoch)
            )
        except ControllerMovedError:
            self._watch.forget_others(())
            return False
        logger.info("%s is the controller, with epoch %d", self.name, self.epoch)
        self._renew()
        return True

    def _timeout_seconds(self) -> float:
        return session_timeout_seconds(self.coordinator.state)

    def _heartbeat_seconds(self) -> float:
        return ClusterConfig.resolve(self.coordinator.state.configs).broker_heartbeat_interval_ms / 1000

    def _is_silent(self) -> bool:
        """Return whether the lease is absent, or unchanged for the session timeout."""
        timeout = self._timeout_seconds()
        self._watch.start_look(timeout)
        unchanged = self._watch.unchanged_seconds(LEASE_KEY)
        return self._watch.is_absent(LEASE_KEY) or (unchanged is not None and unchanged >= timeout)

    def _renew(self) -> None:
        self._beat += 1
        lease = ControllerLease(self.name, self.epoch, self._beat, self._clock.now_ms())
        self.coordinator.store.put(LEASE_KEY, msgspec.json.encode(lease))
        self._renew_at = self._clock.monotonic() + self._heartbeat_seconds()

    def _keep_lease(self) -> None:
        """Renew the lease if that is due, in a pass that takes long: a location may have a million files to list, or
        answer slowly. Else another process would take over before the pass has changed anything, and so on."""
        if self._clock.monotonic() >= self._renew_at:
            self._renew()

    def resign(self) -> None:
        """Delete the lease, so that the next candidate takes over immediately. Raises StorageError."""
        if self.epoch and self.coordinator.refresh().controller.epoch == self.epoch:
            self.coordinator.store.delete(LEASE_KEY)
        self.epoch = 0

    # -- a pass

    def check(self, wait: bool = False) -> ControllerPass:
        """Check all locations and commit the consequences. Raises StorageError if the root does not answer."""
        if not self.take_over(wait):
            return ControllerPass(0)
        shared = self.coordinator
        try:
            with one_timeline(shared) as self.coordinator:
                return self._check_all()
        finally:
            self.coordinator = shared

    def _check_all(self) -> ControllerPass:
        epoch = self.epoch
        locations = self._locations()
        states_epoch = bool(locations) and not self._has_older
        self._root_epoch = read_root(self.coordinator.store).epoch if states_epoch else 0
        self._close_former_roots()
        try:
            findings = [self._check(broker) for broker in locations]
            elected = self._conclude(findings)
            went_back = [finding.broker for finding in findings if finding.health is Health.WENT_BACK]
            if went_back:  # their loss is in the log now, so they may be usable again
                elected += self._conclude([self._check(broker) for broker in went_back])
            unclean = self._elect_unclean()
            preferred = self._balance()
            end_removals(self.coordinator)
        except ControllerMovedError as error:
            logger.warning("%s", error)
            self.epoch = 0
            return ControllerPass(0)
        return ControllerPass(epoch, findings, elected, unclean, preferred)

    @property
    def _has_older(self) -> bool:
        """Whether a program of 0.2.0 may be the controller next."""
        return self.coordinator.state.level < levels.OWNERS_SINCE

    def _locations(self) -> list[int]:
        """Return the brokers to check: all but the root, without which nothing can be committed."""
        return [number for number, broker in sorted(self.coordinator.state.brokers.items()) if broker.url]

    def _next_check(self) -> LatestCheck:
        self._checks += 1
        return LatestCheck(self.epoch, self._checks, self._clock.now_ms(), self._root_epoch)

    def _check(self, broker: int) -> BrokerFinding:
        """Check a location, unless another controller was elected while this one was suspended: its check would be
        newer, and overwritten by an older one it would look as if the location went back."""
        start = self._clock.monotonic()
        current = self.coordinator.refresh().controller
        if current.epoch != self.epoch:
            raise ControllerMovedError(f"{current.controller} is the controller, with epoch {current.epoch}")
        retry_seconds = self._heartbeat_seconds()
        self._keep_lease()
        finding = self._ask_and_keep_lease(broker)
        for attempt in range(CHECK_TRIES - 1):
            if finding.health is not Health.UNANSWERED or self._clock.monotonic() - start >= retry_seconds:
                break  # clients of remote storages have retried for seconds by themselves
            self._clock.sleep(pause_after(attempt, RETRY_SECONDS))
            self._renew()
            finding = self._ask_and_keep_lease(broker)
        if finding.health is not Health.OK:
            logger.info("broker %d: %s: %s", broker, finding.health.value, finding.why)
        return finding

    def _ask_and_keep_lease(self, broker: int) -> BrokerFinding:
        """Ask a location, and keep the lease meanwhile: a slow location takes several calls of some seconds, within
        which another candidate would take over, and be fenced by the next one in the middle of its pass, and so on."""
        return run_beside(partial(self._ask, broker), self._keep_lease, self._heartbeat_seconds())

    def _ask(self, broker: int) -> BrokerFinding:
        log = self.coordinator.log
        try:
            store = broker_store(self.coordinator, log.state, broker)
        except (InvalidCallError, StoragePermissionError) as error:  # cannot be opened from here
            return BrokerFinding(broker, Health.UNKNOWN, error.message)
        try:
            refused = self._check_owner(broker)
        except StorageUnavailableError as error:
            finding = BrokerFinding(broker, Health.UNANSWERED, error.message)
        except SparklogError as error:
            finding = BrokerFinding(broker, Health.FAILED, error.message)
        else:
            if refused is not None:
                return refused
            finding = check_location(
                log.store, store, log.state.cluster_id, broker, self._next_check(), self._has_older
            )
        if finding.health in (Health.UNANSWERED, Health.FAILED):
            other_address = describe_other_address(self.coordinator, broker)
            if other_address:  # it may be mounted there
                return BrokerFinding(broker, Health.OTHER_ADDRESS, f"{finding.why}; {other_address}")
        return finding

    def _check_owner(self, broker: int) -> BrokerFinding | None:
        """Let a location fail whose owner is another root: what this one would store there, that one would delete.
        Before anything is written there, also a check, which would show that one that its files went back. Raises
        BrokerNotAvailableError, StorageError."""
        store, refusal, unsure = examine_owner(self.coordinator, broker, self.coordinator.state)
        if refusal is not None:
            return BrokerFinding(broker, Health.OTHER_ADDRESS if unsure else Health.FAILED, refusal.message)
        if self._clock.monotonic() - self._renewed_at.get(broker, -math.inf) >= RENEW_SECONDS:
            renew_owner(self.coordinator, store, broker)
            self._renewed_at[broker] = self._clock.monotonic()
        return None

    def _close_former_roots(self) -> None:
        """Close the roots that this one has replaced and that were unreachable then, so that they accept no more
        commits. A copy of the promoted root does not: its clients are sent to the root that they are closed for."""
        log = self.coordinator.log
        own = read_root(log.store)
        noted = read_former_roots(log.store)
        close = {url: partial(self._close_former_root, url, own, note) for note, url in noted.items()}
        broker = log.state.brokers.get(ROOT_BROKER)
        if broker is not None and broker.url not in ("", *close):  # no note: promoted by 0.2.0
            close[broker.url] = partial(self._close_former_root, broker.url, own)
        for url, why in self._probes.ask_each(close, self._clock, self._timeout_seconds() / 2).items():
            if why != "":
                logger.debug("could not close the former root %s: %s", url, why or "no answer")

    def _close_former_root(self, url: str, own: RootIdentity, note: str = "") -> str:
        """Close a root unless it is closed, and delete its note. Runs in a thread: its mount may hang. Raises
        SparklogError."""
        log = self.coordinator.log
        root = self.coordinator.brokers.open_registered(ROOT_BROKER, url)
        if (note or read_identity(root) is None) and may_claim(log.store, own):
            try:
                close_root(root, log.state.cluster_id, log.store.root, log.clock, log.ids, own.epoch)
            except ClusterMovedError:  # already closed for a root that this one has replaced
                pass
            except PolicyViolationError as error:  # two roots are in use: an operator decides which one stays
                logger.warning("%s", error.message)
                return ""
            if note:
                log.store.delete(note)
        return ""

    def _conclude(self, findings: Sequence[BrokerFinding]) -> list[TopicPartition]:
        """Commit the consequences of the checks, in one commit unless they are too many for one."""
        went_back = [finding.broker for finding in findings if finding.health is Health.WENT_BACK]
        checked = CheckedBrokers(
            online=[finding.broker for finding in findings if finding.health is Health.OK],
            offline=[finding.broker for finding in findings if finding.health in (Health.UNANSWERED, Health.FAILED)],
            went_back=went_back,
        )
        elected: list[TopicPartition] = []
        more = True
        while more:
            decide = partial(elections.broker_checks, epoch=self.epoch, checked=checked)
            result = self.coordinator.submit(decide)
            elected += result.partitions
            more = result.more
        for broker in went_back:
            self._store_check(broker)
        return elected

    def _store_check(self, broker: int) -> None:
        log = self.coordinator.log
        try:
            store = broker_store(self.coordinator, log.state, broker)
            note_check(log.store, store, broker, self._next_check(), self._has_older)
        except SparklogError as error:
            logger.warning("could not store the check of broker %d: %s", broker, error)

    # -- elections

    def _elect_unclean(self) -> list[TopicPartition]:
        state = self.coordinator.state
        elections_found: list[UncleanElection] = []
        search = UncleanSearch(self.coordinator, state, self._keep_lease)
        for topic, number in waiting_for_unclean_election(state):
            try:
                elections_found.append(search.find(topic, number))
            except SparklogError as error:
                logger.warning("no unclean leader elected for %s-%d: %s", topic, number, error)
        if not elections_found:
            return []
        began = self._elapsed.now()
        elections_found = self._still_needed(elections_found)
        try:
            outcome = self.coordinator.submit(lambda state: self._decide_unclean(state, elections_found, began))
        except EligibleLeadersNotAvailableError as error:
            logger.warning("no unclean leader elected: %s", error)
            return []
        elected = [partition for partition, error in outcome.items() if error is None]
        for election in elections_found:
            if TopicPartition(election.topic, election.partition) in elected:
                lost = sum(replacement.removed.segments for replacement in election.lost)
                logger.warning(
                    "broker %d leads %s-%d by an unclean election; %d segments are lost",
                    election.broker,
                    election.topic,
                    election.partition,
                    lost,
                )
        return elected

    def _still_needed(self, found: Sequence[UncleanElection]) -> list[UncleanElection]:
        """Return the elections of partitions none of whose replicas in sync can be used now."""
        state = self.coordinator.refresh()
        in_sync = {(each.topic, each.partition): _in_sync(state, each) for each in found}
        brokers = {broker for isr in in_sync.values() for broker in isr if broker in state.brokers}
        answers = self._probes.ask(self.coordinator, sorted(brokers), self._timeout_seconds())
        usable = {broker for broker, why in answers.items() if why == "" and self._check(broker).health is Health.OK}
        if usable:
            logger.info("no unclean leader elected where brokers %s are in sync: they are back", sorted(usable))
        return [each for each in found if not usable.intersection(in_sync[each.topic, each.partition])]

    def _decide_unclean(
        self, state: State, found: Sequence[UncleanElection], looked_at: Moment
    ) -> Decision[ErrorByPartition]:
        """Elect, unless this process was suspended since it looked for replicas in sync: they may be back."""
        seconds = self._elapsed.seconds_since(looked_at)
        if seconds > LOOKS_LAST * self._timeout_seconds():
            raise EligibleLeadersNotAvailableError(
                f"the replicas in sync were asked {seconds:.0f} s ago, and may have come back; the next pass asks again"
            )
        return elections.elect_unclean(state, found, self.epoch)

    def _balance(self) -> list[TopicPartition]:
        """Return leadership to the preferred leaders of brokers that lead too few of their partitions."""
        state = self.coordinator.state
        config = ClusterConfig.resolve(state.configs)
        now = self._clock.monotonic()
        if not config.auto_leader_rebalance_enable:
            return []
        if now - self._balanced_at < config.leader_imbalance_check_interval_seconds:
            return []
        self._balanced_at = now
        partitions = _find_unbalanced(state, config.leader_imbalance_per_broker_percentage)
        if not partitions:
            return []
        decide = partial(elections.elect_preferred, partitions=partitions, epoch=self.epoch)
        outcome = self.coordinator.submit(decide)
        return [partition for partition, error in outcome.items() if error is None]


def _in_sync(state: State, election: UncleanElection) -> Sequence[int]:
    topic = state.topics.get(election.topic)
    if topic is None or topic.topic_id != election.topic_id:
        return ()  # deleted since; the decision refuses it
    return topic.partitions[election.partition].isr


def _find_unbalanced(state: State, percentage: int) -> list[TopicPartition]:
    """Return the partitions of brokers over the limit whose preferred leader could lead but does not."""
    over = {broker for broker, share in elections.imbalance(state).items() if share * 100 > percentage}
    online = decide_brokers.online_brokers(state)
    unbalanced: list[TopicPartition] = []
    for topic in state.topics_in_order():
        for number, partition in enumerate(topic.partitions):
            first = partition.replicas[0]
            if first in over and first != partition.leader and first in partition.isr and first in online:
                unbalanced.append(TopicPartition(topic.name, number))
    return unbalanced[: elections.MAX_CHANGES]
