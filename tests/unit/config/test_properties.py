"""Properties files are parsed as by Java, and errors name file and line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.config.properties import parse_properties, read_properties
from sparklog.errors import InvalidConfigurationError


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("", {}),
        ("# comment\n! comment\n\n   \t\n", {}),
        ("a=1", {"a": "1"}),
        ("a = 1", {"a": "1"}),
        ("a:1", {"a": "1"}),
        ("a 1", {"a": "1"}),
        ("  a\t=\t1", {"a": "1"}),
        ("a=b=c:d", {"a": "b=c:d"}),
        ("a==b", {"a": "=b"}),
        ("a=1 ", {"a": "1 "}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a=1\r\nb=2\rc=3\n", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=x,\\\n   y", {"a": "x,y"}),
        ("a=x\\\\\nb=1", {"a": "x\\", "b": "1"}),
        ("a=x\\\n# no comment", {"a": "x# no comment"}),
        ("a=x\\\n\nb=1", {"a": "x", "b": "1"}),
        ("a=x\\", {"a": "x"}),
        ("\\\n\\\n", {}),
        ("a\\=b\\:c\\ d = e", {"a=b:c d": "e"}),
        ("a=\\t\\n\\r\\f\\q\\\\", {"a": "\t\n\r\fq\\"}),
        ("a=\\u00e9\\u0041", {"a": "éA"}),
        ("a=\\ud83d\\ude00", {"a": "\U0001f600"}),
        ("a=é#b", {"a": "é#b"}),
        ("\\#a=1", {"#a": "1"}),
    ],
)
def test_lines_are_parsed_as_by_java(text: str, settings: dict[str, str]) -> None:
    assert parse_properties(text) == settings


@pytest.mark.parametrize(
    ("text", "line"),
    [("a=1\n\n# c\nb=\\u00g0\n", 4), ("a=\\u12", 1), ("x=1\ny=a\\\n  b\\\n  \\uZZZZ", 2), ("a=1\n=2", 2), (":", 1)],
)
def test_a_malformed_line_is_an_error_with_file_and_line(text: str, line: int) -> None:
    with pytest.raises(InvalidConfigurationError, match=rf"\Amy\.properties, line {line}: ") as caught:
        parse_properties(text, "my.properties")
    assert caught.value.line == line


def test_a_file_is_read_as_utf8_with_or_without_a_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "my.properties"
    file.write_bytes(b"\xef\xbb\xbfname=caf\xc3\xa9\n")
    assert read_properties(file) == read_properties(str(file)) == {"name": "café"}


def test_a_file_in_another_encoding_is_an_error_with_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "my.properties"
    file.write_bytes(b"a=1\nname=caf\xe9\n")
    with pytest.raises(InvalidConfigurationError, match=r"my\.properties, line 2: byte 0xe9 is not UTF-8"):
        read_properties(file)


def test_a_missing_file_raises_the_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_properties(tmp_path / "none")


def escaped(text: str) -> str:
    """Escapes a name as ``java.util.Properties.store`` does."""
    units = text.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


@given(st.dictionaries(names, st.text(st.characters(exclude_categories=["Cs"]), max_size=20), max_size=5))
def test_properties_written_by_java_are_read(settings: dict[str, str]) -> None:
    text = "".join(f"{escaped(name)}={escaped(value)}\n" for name, value in settings.items())
    assert parse_properties(text) == settings


@given(st.text(st.sampled_from("ab=: \t\n\r\\u0#!"), max_size=40))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        settings = parse_properties(text)
    except InvalidConfigurationError:
        return
    assert "" not in settings
