"""Which settings allow a job to be rerun, and how its write is numbered so that it happens once."""

from __future__ import annotations

import argparse
import logging

import pytest

from sparklog.spark.jobs.attempts import Settings, find_rerunner, shared_application, warn_of_second_attempt
from sparklog.spark.jobs.batch import add_number_arguments, check_number_arguments, write_number
from sparklog.store.process_local import start_over

YARN = {"spark.master": "yarn", "spark.submit.deployMode": "cluster", "spark.app.id": "application_1_7"}
KUBERNETES = {"spark.master": "k8s://https://k:6443", "spark.submit.deployMode": "cluster", "spark.app.id": "spark-ab"}
STANDALONE = {"spark.master": "spark://h:7077", "spark.submit.deployMode": "client", "spark.app.id": "app-1"}
LOCAL = {"spark.master": "local[*]", "spark.app.id": "local-1"}


def setting(given: dict[str, str]) -> Settings:
    return lambda name, default: given.get(name, default)


@pytest.mark.parametrize(
    ("given", "who"),
    [
        (YARN, "YARN"),
        ({**YARN, "spark.yarn.maxAppAttempts": "4"}, "YARN"),
        ({**YARN, "spark.yarn.maxAppAttempts": "1"}, ""),
        ({**YARN, "spark.submit.deployMode": "client"}, ""),
        ({"spark.master": "yarn"}, ""),
        (KUBERNETES, "Kubernetes"),
        ({**KUBERNETES, "spark.submit.deployMode": "client"}, "Kubernetes"),
        (STANDALONE, ""),
        (LOCAL, ""),
        ({}, ""),
    ],
)
def test_settings_tell_what_may_rerun_a_program(given: dict[str, str], who: str) -> None:
    rerunner = find_rerunner(setting(given))
    assert (who in rerunner) if who else not rerunner


@pytest.mark.parametrize(
    ("given", "application"),
    [
        (YARN, "application_1_7"),
        (KUBERNETES, "spark-ab"),
        ({**KUBERNETES, "spark.submit.deployMode": "client"}, ""),
        (STANDALONE, ""),
        (LOCAL, ""),
    ],
)
def test_attempts_share_an_application_id_if_the_cluster_manager_keeps_it(
    given: dict[str, str], application: str
) -> None:
    assert shared_application(setting(given)) == application


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_number_arguments(parser)
    options = parser.parse_args(list(arguments))
    check_number_arguments(parser, options)
    return options


@pytest.mark.parametrize(
    ("arguments", "given", "number"),
    [
        (["--txn-app-id", "daily", "--txn-version", "7"], YARN, ("daily", 7)),
        (["--txn-app-id", "daily", "--txn-version", "0"], LOCAL, ("daily", 0)),
        (["--txn-app-id", "daily", "--run-date", "2026-11-20"], YARN, ("daily:2026-11-20", 0)),
        (["--txn-app-id", "h", "--run-date", "2026-11-20T06:00"], LOCAL, ("h:2026-11-20T06:00", 0)),
        (["--txn-app-id", "h", "--run-date", "2026-11-20T06:00:00+00:00"], LOCAL, ("h:2026-11-20T06:00:00+00:00", 0)),
        ([], YARN, ("spark:application_1_7", 0)),
        ([], KUBERNETES, ("spark:spark-ab", 0)),
        ([], LOCAL, (None, None)),
    ],
)
def test_a_write_is_numbered_by_its_options_or_else_by_its_shared_application(
    arguments: list[str], given: dict[str, str], number: tuple[str | None, int | None]
) -> None:
    assert write_number(parsed(*arguments), setting(given)) == number


@pytest.mark.parametrize(
    "arguments",
    [
        ["--txn-app-id", "daily"],
        ["--txn-version", "7"],
        ["--run-date", "2026-11-20"],
        ["--txn-app-id", "daily", "--txn-version", "7", "--run-date", "2026-11-20"],
        ["--txn-app-id", "daily", "--run-date", "today"],
        ["--txn-app-id", "daily", "--run-date", "2026-11-20{{ts}}"],
        ["--txn-app-id", "daily", "--run-date", "2026-11-31"],
    ],
)
def test_an_application_without_a_version_is_a_usage_error(arguments: list[str]) -> None:
    with pytest.raises((SystemExit, argparse.ArgumentError)):
        parsed(*arguments)


def test_an_unnumbered_write_is_warned_about_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_over()
    caplog.set_level(logging.WARNING)
    warn_of_second_attempt(setting(LOCAL))
    assert caplog.text == ""
    warn_of_second_attempt(setting(YARN))
    warn_of_second_attempt(setting(YARN))
    assert caplog.text.count("pass txn_app_id and txn_version to sparklog.write") == 1
    assert "spark.yarn.maxAppAttempts is not 1" in caplog.text
