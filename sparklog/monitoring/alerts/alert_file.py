"""The file that keeps the state of alerts between evaluations, and notifications until they are sent (SQLite).

    with AlertFile(path) as file, file.transaction():
        earlier = file.alerts(cluster_id)

Tables: ``evaluations`` (the last one of each cluster), ``alerts`` (pending and firing), ``changes`` (the newest
``CHANGES_KEPT``), ``notifications`` (to send), ``rule_sets`` (which rules were used, and when). A change and its
notifications are stored by one transaction, and a notification is removed when it was sent: a crash repeats it, and
loses none. A process claims what it sends for ``CLAIM_MS``, so two on one file do not send the same.

Rules: nothing is decided here. Not thread-safe.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, NamedTuple

from sparklog.errors import StorageError
from sparklog.monitoring.alerts.ticks import Reading, Tick
from sparklog.monitoring.alerts.transitions import AlertChange, AlertKey, AlertState, Subject

STATE_SUFFIX = ".state"
FORMAT = 1
"""``user_version`` of the file."""
APPLICATION_ID = 0x53504C41
CHANGES_KEPT = 10_000
CLAIM_MS = 600_000
"""ms for which a process may send what it claimed; longer than any channel's timeout."""
MAX_ALERTS_PER_MESSAGE = 100
MAX_ATTEMPTS = 12
"""Failed attempts after which a notification is given up; the back-offs between them add up to five hours."""
FIRST_BACK_OFF_MS, MAX_BACK_OFF_MS = 30_000, 3_600_000
BUSY_SECONDS = 30.0

_TABLES = """
CREATE TABLE evaluations (
    cluster TEXT PRIMARY KEY, time_ms INTEGER, elapsed REAL, wall_ms INTEGER, monotonic REAL, boot TEXT, off_for REAL);
CREATE TABLE alerts (
    cluster TEXT, rule TEXT, subject TEXT, status TEXT, since_ms INTEGER, held REAL, cleared REAL, value REAL,
    detail TEXT, PRIMARY KEY (cluster, rule, subject)) WITHOUT ROWID;
CREATE TABLE changes (
    id INTEGER PRIMARY KEY, cluster TEXT, rule TEXT, subject TEXT, status TEXT, time_ms INTEGER, since_ms INTEGER,
    value REAL, detail TEXT);
CREATE TABLE notifications (
    id INTEGER PRIMARY KEY AUTOINCREMENT, cluster TEXT, channel TEXT, alert TEXT, attempts INTEGER DEFAULT 0,
    next_ms INTEGER DEFAULT 0, claimed_ms INTEGER);
"""
_LATER_TABLES = """
CREATE TABLE IF NOT EXISTS rule_sets (cluster TEXT, digest TEXT, used_ms INTEGER, PRIMARY KEY (cluster, digest));
"""
"""Added to a file that lacks them; versions before them ignore them."""
RULE_SETS_KEPT = 100


def state_path(rules: str, given: str | None = None) -> str:
    """Return the path of the file that keeps the alerts of a file of rules: the one given, or beside the rules."""
    return given or os.path.splitext(rules)[0] + STATE_SUFFIX


class Notification(NamedTuple):
    """An alert that a channel is to be told, the number of attempts so far, and its number in the file."""

    number: int
    alert: dict[str, Any]
    attempts: int


class AlertFile:
    """The file. Opened at once, and created if it does not exist; close it, or use it as a context manager.

    Raises StorageError, which names the file, also in all methods.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        with self._errors():
            self._database = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
        try:
            with self.transaction():
                self._prepare()
        except BaseException:
            self._database.close()
            raise

    def __enter__(self) -> AlertFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. What was not committed is lost."""
        self._database.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Hold the file alone within the block, and commit what it changes; nothing if it raises."""
        with self._errors():
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                if self._database.in_transaction:  # SQLite ends it itself when the disk is full
                    self._database.execute("ROLLBACK")
                raise
            self._database.execute("COMMIT")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StorageError(
                f"the state of alerts in {self.path} cannot be used: {error}; name another file with --state",
                path=self.path,
            ) from error

    def _prepare(self) -> None:
        (application,) = self._one("PRAGMA application_id")
        (form,) = self._one("PRAGMA user_version")
        (tables,) = self._one("SELECT count(*) FROM sqlite_master")
        if not tables and not application:
            for statement in _TABLES.split(";\n"):
                self._database.execute(statement)
            self._database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            self._database.execute(f"PRAGMA user_version = {FORMAT}")
        elif application != APPLICATION_ID:
            raise sqlite3.DatabaseError("it is the database of another program")
        elif form > FORMAT:
            raise sqlite3.DatabaseError("a newer version of sparklog wrote it: upgrade sparklog")
        self._database.execute(_LATER_TABLES)

    def _one(self, statement: str, *values: object) -> tuple[Any, ...]:
        with closing(self._database.execute(statement, values)) as rows:
            row: tuple[Any, ...] = rows.fetchone() or (None,)
        return row

    def _all(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with self._errors(), closing(self._database.execute(statement, values)) as rows:
            return rows.fetchall()

    # -- evaluations

    def last_tick(self, cluster: str) -> Tick | None:
        """Return the time of the last evaluation of a cluster."""
        names = "time_ms, elapsed, wall_ms, monotonic, boot, off_for"
        for time_ms, elapsed, *reading, off_for in self._all(
            f"SELECT {names} FROM evaluations WHERE cluster = ?", cluster
        ):
            return Tick(time_ms, elapsed, Reading(*reading), off_for)
        return None

    def alerts(self, cluster: str) -> dict[AlertKey, AlertState]:
        """Return the alerts of a cluster that are pending or firing."""
        names = "rule, subject, status, since_ms, held, cleared, value, detail"
        rows = self._all(f"SELECT {names} FROM alerts WHERE cluster = ? ORDER BY rule, subject", cluster)
        return {(rule, _subject(subject)): AlertState(*state) for rule, subject, *state in rows}

    def changes(self, cluster: str, limit: int = CHANGES_KEPT) -> list[AlertChange]:
        """Return the newest changes of a cluster's alerts, the newest first."""
        names = "rule, subject, status, time_ms, since_ms, value, detail"
        rows = self._all(f"SELECT {names} FROM changes WHERE cluster = ? ORDER BY id DESC LIMIT ?", cluster, limit)
        return [AlertChange(rule, _subject(subject), *rest) for rule, subject, *rest in rows]

    def rule_sets(self, cluster: str) -> dict[str, int]:
        """Return when each set of rules was last used for a cluster, in ms, the one that was used last at the end."""
        return dict(self._all("SELECT digest, used_ms FROM rule_sets WHERE cluster = ? ORDER BY rowid", cluster))

    def note_rule_set(self, cluster: str, digest: str, time_ms: int) -> None:
        """Note that a set of rules is used. Within a transaction."""
        self._many("INSERT OR REPLACE INTO rule_sets VALUES (?, ?, ?)", [(cluster, digest, time_ms)])
        self._many("DELETE FROM rule_sets WHERE rowid <= (SELECT max(rowid) FROM rule_sets) - ?", [(RULE_SETS_KEPT,)])

    def save(
        self,
        cluster: str,
        tick: Tick,
        states: Mapping[AlertKey, AlertState],
        changes: Sequence[AlertChange],
        notifications: Iterable[tuple[str, Mapping[str, Any]]],
    ) -> None:
        """Replace a cluster's alerts, and add changes and notifications (channel and alert). Within a transaction."""
        reading = tick.reading
        self._many("DELETE FROM alerts WHERE cluster = ?", [(cluster,)])
        self._many(
            "INSERT OR REPLACE INTO evaluations VALUES (?, ?, ?, ?, ?, ?, ?)",
            [(cluster, tick.time_ms, tick.elapsed, *reading, tick.off_for)],
        )
        self._many(
            "INSERT INTO alerts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [(cluster, rule, json.dumps(subject), *state) for (rule, subject), state in states.items()],
        )
        self._many(
            "INSERT INTO changes (cluster, rule, subject, status, time_ms, since_ms, value, detail)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [(cluster, change.rule, json.dumps(change.subject), *change[2:]) for change in changes],
        )
        self._many("DELETE FROM changes WHERE id <= (SELECT max(id) FROM changes) - ?", [(CHANGES_KEPT,)])
        self._many(
            "INSERT INTO notifications (cluster, channel, alert) VALUES (?, ?, ?)",
            [(cluster, channel, json.dumps(alert)) for channel, alert in notifications],
        )

    def _many(self, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
        with self._errors():
            self._database.executemany(statement, rows)

    # -- notifications

    def claim(self, cluster: str, channels: Iterable[str], now_ms: int) -> dict[str, list[Notification]]:
        """Return what to send now by channel, the oldest first, and forget what is for no known channel.

        A channel gets nothing while its oldest notification waits for its next attempt, or another process sends it.
        """
        claimed = {}
        with self.transaction():
            known = list(channels)
            marks = ", ".join("?" * len(known))
            self._many(f"DELETE FROM notifications WHERE cluster = ? AND channel NOT IN ({marks})", [(cluster, *known)])
            for channel in known:
                rows = self._all(
                    "SELECT id, alert, attempts, next_ms, claimed_ms FROM notifications"
                    " WHERE cluster = ? AND channel = ? ORDER BY id LIMIT ?",
                    cluster,
                    channel,
                    MAX_ALERTS_PER_MESSAGE,
                )
                if rows and _may_be_sent(rows[0][3], rows[0][4], now_ms):
                    claimed[channel] = [
                        Notification(number, json.loads(alert), attempts) for number, alert, attempts, *_ in rows
                    ]
                    self._many(
                        "UPDATE notifications SET claimed_ms = ? WHERE id = ?", [(now_ms, row[0]) for row in rows]
                    )
        return claimed

    def remove(self, sent: Iterable[Notification]) -> None:
        """Remove notifications that were sent."""
        with self.transaction():
            self._many("DELETE FROM notifications WHERE id = ?", [(each.number,) for each in sent])

    def postpone(self, failed: Iterable[Notification], now_ms: int) -> int:
        """Let notifications be sent again later; return how many are given up, after ``MAX_ATTEMPTS``."""
        waiting = list(failed)
        lost = [(each.number,) for each in waiting if each.attempts + 1 >= MAX_ATTEMPTS]
        with self.transaction():
            self._many(
                "UPDATE notifications SET attempts = attempts + 1, next_ms = ?, claimed_ms = NULL WHERE id = ?",
                [(now_ms + back_off_ms(each.attempts), each.number) for each in waiting],
            )
            self._many("DELETE FROM notifications WHERE id = ?", lost)
        return len(lost)


def back_off_ms(attempts: int) -> int:
    """Return how long to wait after one more failed attempt."""
    return int(min(FIRST_BACK_OFF_MS * 2 ** min(attempts, 20), MAX_BACK_OFF_MS))


def _may_be_sent(next_ms: int, claimed_ms: int | None, now_ms: int) -> bool:
    """Return whether a notification is due and nobody sends it; times in the far future are of a clock that was
    ahead."""
    is_claimed = claimed_ms is not None and abs(now_ms - claimed_ms) < CLAIM_MS
    return not is_claimed and not now_ms < next_ms <= now_ms + MAX_BACK_OFF_MS


def _subject(text: str) -> Subject:
    return tuple((what, name) for what, name in json.loads(text))
