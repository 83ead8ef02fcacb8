"""How the programs in jobs/ report failures: one helpful line."""

from __future__ import annotations

import argparse

import pytest

from sparklog.errors import InvalidOptionError, MessageSizeTooLargeError
from sparklog.spark.jobs.batch import MAX_REASON_CHARACTERS, pair, reason, run, storage_values

IN_A_TASK = """Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times, most recent failure: Lost \
task 0.0 in stage 0.0 (TID 0) (h 1): org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "pyspark/worker.py", line 1, in main
    process()
{raised}

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:1)
\tat java.base/java.lang.Thread.run(Thread.java:1)

Driver stacktrace:
"""


def test_a_sparklog_error_is_reported_by_its_message() -> None:
    assert reason(InvalidOptionError("invalid value '' for option topic")) == "invalid value '' for option topic"


def test_a_sparklog_error_wrapped_by_spark_is_reported_by_its_message() -> None:
    text = IN_A_TASK.format(raised="sparklog.errors.MessageSizeTooLargeError: topic t, partition 3: 2 MB are too many")
    assert reason(RuntimeError(text)) == "topic t, partition 3: 2 MB are too many"


def test_other_python_errors_are_reported_with_their_type() -> None:
    text = IN_A_TASK.format(raised="KeyError: 'a'\n\nDuring handling of it, another:\n\nmypackage.MyError: not so")
    assert reason(Exception(text)) == "MyError: not so"


def test_an_executor_without_the_package_is_reported_in_its_own_words() -> None:
    text = IN_A_TASK.format(raised="RuntimeError: the Spark executor on h lacks sparklog")
    assert reason(Exception(text)) == "the Spark executor on h lacks sparklog"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[PATH_NOT_FOUND] Path does not exist: file:/a.csv. SQLSTATE: 42K03\n\nmore",
            "[PATH_NOT_FOUND] Path does not",
        ),
        (
            "An error occurred while calling o1.save.\n: org.apache.SparkException: [A_B.C_D] Bad: [x].\n\tat a.b(c)",
            "[A_B.C_D] Bad: [x].",
        ),
        (
            "An error occurred while calling o1.save.\n: java.io.IOException: No space left\n\tat a.b(c)",
            "No space left",
        ),
        (
            "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n: "
            "java.util.ConcurrentModificationException\n\tat org.apache.spark.ui.SparkUI.attachAllHandlers(SparkUI)",
            "Spark's web page and YARN's filter started at the same moment: submit again",
        ),
        ("", "Exception"),
    ],
)
def test_a_spark_error_is_reported_by_its_first_informative_line(text: str, said: str) -> None:
    assert reason(Exception(text)).startswith(said)
    assert "\n" not in reason(Exception(text))


def test_a_lost_connection_says_to_whom() -> None:
    assert reason(ConnectionRefusedError(111, "Connection refused")).startswith(
        "Spark's JVM has ended, or does not answer"
    )


def test_a_reason_is_one_line_of_bounded_length() -> None:
    assert reason(MessageSizeTooLargeError("a\nb\tc")) == "a b c"
    assert len(reason(ValueError("x" * 10_000))) == MAX_REASON_CHARACTERS + 1


def test_exit_codes_tell_success_failure_and_interruption(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> str:
        raise ValueError("no")

    def interrupt() -> str:
        raise KeyboardInterrupt

    assert [run("p", lambda: "done"), run("p", fail), run("p", interrupt)] == [0, 1, 130]
    assert capsys.readouterr().err.splitlines() == ["p: done", "p: failed: no", "p: interrupted"]


def test_key_value_pairs_keep_equal_signs_in_values() -> None:
    assert pair("a=b=c") == ("a", "b=c")
    for text in ("a", "=b", ""):
        with pytest.raises(argparse.ArgumentTypeError):
            pair(text)


def test_storage_options_are_text_unless_they_can_only_be_json() -> None:
    given = [("key", "123"), ("anon", "true"), ("client_kwargs", '{"region_name": "x"}')]
    assert storage_values(given) == {"key": "123", "anon": True, "client_kwargs": {"region_name": "x"}}


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        ("java.nio.file.NoSuchFileException: /elsewhere/dist/env.tar.gz", "no such file: /elsewhere/dist/env.tar.gz"),
        ("java.nio.file.AccessDeniedException: /data/my files/log", "access denied: /data/my files/log"),
        ("java.net.UnknownHostException: namenode", "unknown host: namenode"),
        ("java.lang.ClassNotFoundException: org.example.Source", "class not found: org.example.Source"),
        ("java.io.FileNotFoundException: File file:/data/x does not exist", "File file:/data/x does not exist"),
    ],
)
def test_a_message_of_java_that_is_only_a_name_says_what_is_wrong_with_it(raised: str, said: str) -> None:
    assert reason(Exception(f"An error occurred while calling o1.load.\n: {raised}\n\tat sun.nio.Fs(F.java:1)")) == said
