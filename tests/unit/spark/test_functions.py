"""Functions named on a command line."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.cloudpickle import dumps

from sparklog.errors import InvalidOptionError
from sparklog.spark.jobs.functions import load_function


def test_a_function_from_a_file_works_where_the_file_is_missing(tmp_path: Path) -> None:
    file = tmp_path / "totals.py"
    file.write_text("FACTOR = 3\ndef times(number):\n    return FACTOR * number\n")
    sent = tmp_path / "sent"
    sent.write_bytes(dumps(load_function(f"{file}:times")))
    file.unlink()
    program = f"import pickle; print(pickle.load(open({str(sent)!r}, 'rb'))(14))"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "42\n"


def test_a_function_of_a_module_is_imported() -> None:
    assert load_function("os.path:join") is __import__("os").path.join
    assert pickle.loads(dumps(load_function("os.path:join"))) is __import__("os").path.join


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("process", "names no function"),
        (":process", "names no function"),
        ("nowhere.py:process", "is not a file"),
        ("no.such.module:process", "cannot be imported"),
        ("os.path:joyn", "has no function 'joyn'"),
        ("{folder}/broken.py:process", "cannot be loaded: SyntaxError"),
    ],
)
def test_an_invalid_function_name_is_refused(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "broken.py").write_text("def process(:\n")
    with pytest.raises(InvalidOptionError, match=why):
        load_function(text.format(folder=tmp_path))
