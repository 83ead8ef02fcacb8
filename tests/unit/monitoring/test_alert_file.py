"""The file that keeps alerts between evaluations, and notifications until they are sent."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sparklog.errors import StorageError
from sparklog.monitoring.alerts.alert_file import CLAIM_MS, MAX_ATTEMPTS, AlertFile, Notification, back_off_ms
from sparklog.monitoring.alerts.ticks import Reading, Tick
from sparklog.monitoring.alerts.transitions import AlertChange, AlertState

SUBJECT = (("group", "a'\"\n☃"), ("topic", "t"))
TICK = Tick(5000, 1.5, Reading(5001, 2.5, "boot"), 0.5)
STATE = AlertState("firing", 1000, 90.0, None, 12.5, "remark")
CHANGE = AlertChange("rule", SUBJECT, "firing", 5000, 1000, 12.5, "remark")


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "alerts.state")


@pytest.fixture
def file(path: str) -> Iterator[AlertFile]:
    with AlertFile(path) as opened:
        yield opened


def save(file: AlertFile, *channels: str, cluster: str = "c") -> None:
    with file.transaction():
        notifications = [(channel, {"rule": f"rule {number}"}) for number, channel in enumerate(channels)]
        file.save(cluster, TICK, {("rule", SUBJECT): STATE}, [CHANGE], notifications)


def claim(file: AlertFile, now_ms: int, *channels: str) -> dict[str, list[Notification]]:
    return file.claim("c", channels or ("ops",), now_ms)


def rules(claimed: dict[str, list[Notification]]) -> dict[str, list[str]]:
    return {channel: [each.alert["rule"] for each in found] for channel, found in claimed.items()}


def test_what_is_saved_is_there_when_the_file_is_opened_again(path: str) -> None:
    with AlertFile(path) as file:
        assert (file.last_tick("c"), file.alerts("c"), file.changes("c")) == (None, {}, [])
        save(file, "ops")
    with AlertFile(path) as file:
        assert file.last_tick("c") == TICK
        assert file.alerts("c") == {("rule", SUBJECT): STATE}
        assert file.changes("c") == [CHANGE]
        assert rules(claim(file, 0)) == {"ops": ["rule 0"]}


def test_clusters_in_one_file_do_not_see_each_other(file: AlertFile) -> None:
    save(file, "ops", cluster="other")
    assert (file.last_tick("c"), file.alerts("c"), file.changes("c"), claim(file, 0)) == (None, {}, [], {})
    assert file.alerts("other")


def test_a_transaction_that_fails_changes_nothing(file: AlertFile) -> None:
    def interrupted() -> None:
        with file.transaction():
            file.save("c", TICK, {("rule", SUBJECT): STATE}, [CHANGE], [("ops", {})])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert (file.last_tick("c"), file.alerts("c"), claim(file, 0)) == (None, {}, {})


def test_what_is_claimed_is_not_sent_by_another_process(file: AlertFile, path: str) -> None:
    save(file, "ops", "mail", "ops")
    assert rules(claim(file, 1000, "ops", "mail")) == {"ops": ["rule 0", "rule 2"], "mail": ["rule 1"]}
    with AlertFile(path) as other:
        save(other, "mail")
        assert claim(other, 0, "ops", "mail") == {}, "also if its clock is a little behind"
        assert claim(other, CLAIM_MS, "ops", "mail") == {}


def test_what_a_process_that_died_had_claimed_is_sent_again(file: AlertFile) -> None:
    save(file, "ops")
    assert claim(file, 1000)
    assert rules(claim(file, 1000 + CLAIM_MS)) == {"ops": ["rule 0"]}


def test_a_clock_that_was_ahead_does_not_keep_notifications_forever(file: AlertFile) -> None:
    save(file, "ops")
    ahead = 10**12
    file.postpone(claim(file, ahead)["ops"], ahead)
    assert rules(claim(file, 1000)) == {"ops": ["rule 0"]}


def test_what_was_sent_is_removed(file: AlertFile) -> None:
    save(file, "ops", "mail")
    claimed = claim(file, 1000, "ops", "mail")
    file.remove(claimed["ops"])
    assert rules(claim(file, 1000 + CLAIM_MS, "ops", "mail")) == {"mail": ["rule 1"]}


def test_a_channel_that_failed_gets_its_notifications_later_and_in_order(file: AlertFile) -> None:
    save(file, "ops")
    assert file.postpone(claim(file, 1000)["ops"], 1000) == 0
    save(file, "ops")
    due = 1000 + back_off_ms(0)
    assert claim(file, due - 1) == {}, "nor the second one, which would overtake the first"
    assert [each.attempts for each in claim(file, due)["ops"]] == [1, 0]


def test_a_notification_is_given_up_after_a_number_of_attempts(file: AlertFile) -> None:
    save(file, "ops")
    now, lost = 0, []
    for _ in range(MAX_ATTEMPTS):
        (notification,) = claim(file, now)["ops"]
        lost.append(file.postpone([notification], now))
        now += back_off_ms(notification.attempts)
    assert lost == [0] * (MAX_ATTEMPTS - 1) + [1]
    assert claim(file, now) == {}
    assert 5 * 3_600_000 < now < 24 * 3_600_000


def test_notifications_for_a_channel_that_the_rules_no_longer_have_are_forgotten(file: AlertFile) -> None:
    save(file, "old", "ops")
    claimed = claim(file, 0, "ops")
    assert rules(claimed) == {"ops": ["rule 1"]}
    file.remove(claimed["ops"])
    assert claim(file, 0, "ops", "old") == {}


def test_two_processes_take_turns(file: AlertFile, path: str) -> None:
    with AlertFile(path) as other:
        with file.transaction():
            save_within = file.last_tick("c")
            file.save("c", TICK, {}, [], [])
        assert save_within is None
        with other.transaction():
            assert other.last_tick("c") == TICK


def test_a_file_of_something_else_is_refused(path: str, tmp_path: Path) -> None:
    Path(path).write_text("[[rule]]\n" * 200)
    with pytest.raises(StorageError, match="cannot be used: file is not a database; name another file with --state"):
        AlertFile(path)
    other = str(tmp_path / "other.sqlite")
    with sqlite3.connect(other) as database:
        database.execute("CREATE TABLE alerts (a)")
    database.close()
    with pytest.raises(StorageError, match="the database of another program"):
        AlertFile(other)


def test_a_file_of_a_newer_version_is_refused(path: str) -> None:
    AlertFile(path).close()
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(StorageError, match="upgrade sparklog"):
        AlertFile(path)


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"no/alerts.state cannot be used: unable to open"):
        AlertFile(str(tmp_path / "no" / "alerts.state"))


def test_a_file_of_before_rules_were_noted_is_used_on(path: str) -> None:
    AlertFile(path).close()
    with closing(sqlite3.connect(path)) as database:
        database.execute("DROP TABLE rule_sets")
    with AlertFile(path) as file:
        for time_ms, digest in enumerate(("a", "b", "a")):
            with file.transaction():
                file.note_rule_set("c", digest, time_ms)
        assert list(file.rule_sets("c").items()) == [("b", 1), ("a", 2)]
        assert file.rule_sets("another") == {}
