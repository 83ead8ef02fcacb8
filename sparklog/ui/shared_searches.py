"""Searches of records that viewers share, so that a live page costs the storage the same however many look at it.

    found = SharedSearches(coordinator).find(state, wanted, admits, is_live=True)

A search is made once for all who ask the same of a topic that has not changed. Live pages ask by themselves: of their
searches one runs at a time, and begins ``LIVE_SECONDS`` after the last one. Who asks for another one meanwhile gets
what was found before, and the rest when they ask again.

Rules: reads only. Not for: what a search reads (``record_search``).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from concurrent.futures import Future
from typing import NamedTuple

from sparklog.coordinator import Coordinator
from sparklog.protocol.state import State, TopicState
from sparklog.ui.record_search import FoundRecords, Search, search
from sparklog.ui.views.record_filter import RecordFilter

LIVE_SECONDS = 1.0
"""Pause between the end of a live page's search and the next one's begin."""
MAX_KEPT = 64
"""Searches of which the records are kept."""
MAX_KEPT_BYTES = 32 * 1024 * 1024
"""Bytes of records that are kept for all searches together."""


class TooEarly(Exception):
    """A live page's search has to wait, and nothing was found before."""


class _Kept(NamedTuple):
    """What a search found in a topic as it was then, and about how many bytes that takes."""

    topic: TopicState
    found: FoundRecords
    size: int


class SharedSearches:
    """The searches of one cluster. Thread-safe."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._clock = coordinator.log.clock
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()
        self._running: dict[Hashable, tuple[TopicState, Future[FoundRecords]]] = {}
        self._lock = threading.Lock()
        self._is_live_running = False
        self._next_live = self._clock.monotonic()

    def find(self, state: State, wanted: Search, admits: RecordFilter, is_live: bool = False) -> FoundRecords:
        """Return what a search finds in this state; of a live page, perhaps in an earlier one.

        Raises TooEarly if a live page has to wait, and as ``search``.
        """
        topic, question = state.topic(wanted.topic), _question(wanted, admits, is_live)
        with self._lock:
            kept = self._kept.get(question)
            if kept is not None and kept.topic is topic:
                self._kept.move_to_end(question)
                return kept.found
            running = self._running.get(question)
            if running is not None and running[0] is topic:
                shared: Future[FoundRecords] | None = running[1]
            elif is_live and not self._may_begin():
                if kept is None:
                    raise TooEarly
                return kept.found
            else:
                shared, own = None, Future[FoundRecords]()
                self._running[question] = (topic, own)
                self._is_live_running |= is_live
        return self._run(question, state, wanted, admits, is_live, own) if shared is None else shared.result()

    def _may_begin(self) -> bool:
        return not self._is_live_running and self._clock.monotonic() >= self._next_live

    def _run(
        self,
        question: Hashable,
        state: State,
        wanted: Search,
        admits: RecordFilter,
        is_live: bool,
        own: Future[FoundRecords],
    ) -> FoundRecords:
        try:
            found = search(self._coordinator, state, wanted, admits)
            own.set_result(found)
        except BaseException as error:
            own.set_exception(error)
            raise
        finally:
            with self._lock:
                if self._running.get(question, (None, None))[1] is own:
                    del self._running[question]
                if is_live:
                    self._is_live_running = False
                    self._next_live = self._clock.monotonic() + LIVE_SECONDS
        self._keep(question, _Kept(state.topic(wanted.topic), found, _size(found)))
        return found

    def _keep(self, question: Hashable, kept: _Kept) -> None:
        with self._lock:
            self._kept[question] = kept
            self._kept.move_to_end(question)
            while len(self._kept) > MAX_KEPT or sum(each.size for each in self._kept.values()) > MAX_KEPT_BYTES:
                self._kept.popitem(last=False)


def _question(wanted: Search, admits: RecordFilter, is_live: bool) -> Hashable:
    """Return what makes searches of the same topic equal; live ones all begin at its end."""
    starts = tuple(wanted.starts) if is_live else tuple(wanted.starts.items())
    return wanted.topic, wanted.backwards, wanted.limit, wanted.kept_bytes, starts, admits, is_live


def _size(found: FoundRecords) -> int:
    headers = sum(len(name) + len(value or b"") for record in found.records for name, value in record.headers)
    return headers + sum(len(record.key or b"") + len(record.value or b"") + 400 for record in found.records)
