"""The parts of the Kafka broker's script that run before anything is started or fetched."""

from __future__ import annotations

import re
import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.servers import jars, kafka
from scripts.servers.common import Skipped


@given(st.uuids())
def test_a_cluster_id_is_22_characters_and_never_looks_like_an_option(number: uuid.UUID) -> None:
    assert re.fullmatch("[A-Za-z0-9_][A-Za-z0-9_-]{21}", kafka.cluster_id(number))


def test_a_cluster_id_never_starts_with_a_dash() -> None:
    assert kafka.cluster_id(uuid.UUID(int=0b111110 << 122)) == "A" + "A" * 21


def test_the_broker_listens_on_the_loopback_address_only(tmp_path: Path) -> None:
    settings = dict(line.split("=", 1) for line in kafka.properties(tmp_path / "data", 1001, 1002).splitlines())
    assert settings["listeners"] == "PLAINTEXT://127.0.0.1:1001,CONTROLLER://127.0.0.1:1002"
    assert settings["advertised.listeners"] == "PLAINTEXT://127.0.0.1:1001"
    assert settings["controller.quorum.voters"] == "0@127.0.0.1:1002"
    assert settings["log.dirs"] == str(tmp_path / "data")


def test_both_clients_are_pinned() -> None:
    for name in ("kafka-python", "confluent-kafka"):
        assert re.fullmatch(rf"{name}==\d+(\.\d+)+", kafka.pinned(name, kafka.REQUIREMENTS.read_text()))


def test_a_client_that_is_not_pinned_is_not_installed() -> None:
    with pytest.raises(LookupError, match="kafka is not pinned"):
        kafka.pinned("kafka", "# kafka==1.0\nkafka-python==3.0\n")


def test_the_version_of_the_jars_comes_from_their_folder() -> None:
    assert f"<version>{kafka.VERSION}</version>" in kafka.POM.read_text()


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        ('openjdk version "17.0.12" 2024-07-16\n', 17),
        ('java version "21" 2023-09-19 LTS\n', 21),
        ('java version "1.8.0_392"\n', 8),
        ("bash: java: not found\n", 0),
    ],
)
def test_the_version_of_java_is_parsed_from_its_output(answer: str, version: int) -> None:
    assert jars.java_version(answer) == version


def test_without_maven_the_broker_is_skipped_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Skipped, match="no `mvn` in PATH"):
        jars.fetch_jars("Kafka", kafka.POM, tmp_path / "jars", 44)


def test_without_java_the_broker_is_skipped_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(Skipped, match="Kafka needs Java 17 or newer"):
        jars.find_java("Kafka")


def test_existing_jars_are_not_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert jars.fetch_jars("Kafka", kafka.POM, tmp_path, 44) == tmp_path
