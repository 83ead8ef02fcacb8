"""How the Python of a user's own session is checked for sparklog, without a session."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sparklog.spark import own_session
from sparklog.spark.own_session import UNIX_SOCKETS, advise_unix_sockets, has_sparklog


def python(place: Path, text: str) -> str:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(f"#!/bin/sh\n{text}\n")
    place.chmod(0o755)
    return str(place)


def test_the_running_python_has_sparklog() -> None:
    assert has_sparklog(sys.executable, is_local=True)


def test_another_python_is_probed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_it = python(tmp_path / "a" / "python3", f'exec {sys.executable} "$@"')
    monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))
    assert has_sparklog(with_it, is_local=True)
    without = python(tmp_path / "b" / "python3", f'exec {sys.executable} -I -S "$@"')
    assert not has_sparklog(without, is_local=True)


def test_a_missing_python_is_accepted_only_on_a_cluster(tmp_path: Path) -> None:
    assert not has_sparklog(str(tmp_path / "python3"), is_local=True)
    assert has_sparklog("./env/bin/python", is_local=False)


def test_a_python_whose_probe_fails_is_accepted(tmp_path: Path) -> None:
    assert has_sparklog(python(tmp_path / "python3", "exit 1"), is_local=True)


@pytest.mark.parametrize(("setting", "can", "advised"), [(None, True, 1), (None, False, 0), ("false", True, 0)])
def test_a_session_without_unix_sockets_is_told_once_what_they_would_save(
    setting: str | None, can: bool, advised: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    advise_unix_sockets.cache_clear()
    monkeypatch.setattr(own_session, "has_unix_sockets", lambda: can)
    for _ in range(3):
        advise_unix_sockets(setting)
    assert [record for record in caplog.messages if f"{UNIX_SOCKETS}=true" in record] == caplog.messages
    assert len(caplog.messages) == advised
