"""Write docs/reference from the docstrings: the public names of the package, and its errors.

    python scripts/reference.py             write docs/reference/api.md and docs/reference/errors.md
    python scripts/reference.py --check     exit with 1 if they differ from what this would write

Signatures and docstrings are those of the imported package, so that what a decorator or a base class adds is there too.
In a docstring ``name`` is code, an indented block is an example, and ``Raises:`` begins a list.

Not for: explanations (the other pages of docs/), and Kafka's module layout (``sparklog.kafka``).
"""

from __future__ import annotations

import argparse
import enum
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import sparklog
import sparklog.errors.kafka
from sparklog import errors
from sparklog.client import arguments
from sparklog.client.config import SOCKET_ARGUMENTS

REFERENCE = Path(__file__).resolve().parents[1] / "docs" / "reference"
MADE = "<!-- Made by scripts/reference.py from the docstrings; change those. -->\n"
SPARK_FUNCTIONS = ("register", "read", "table", "create_view", "write", "write_batch")
WIDTH = 100

API_HEAD = f"""{MADE}
# The public names of the package

`import sparklog` gives these. Each example is run by a test; in them `root` is the folder of a cluster that has a topic
`orders`, `producer`, `consumer` (of the group `billing`) and `admin` are clients of it, and `spark` is a session of
Spark. The pages by task are in [../README.md](../README.md).
"""

ERRORS_HEAD = f"""{MADE}
# Errors

All are in `sparklog.errors`, and derive from `SparklogError`, whose other name is `KafkaError`. `error.message` says
what happened and what to do; `error.topic`, `error.partition`, `error.offset`, `error.path` say what it is about, and
are None where that does not apply. Errors can be pickled.

```python
try:
    producer.send("orders", b"value").get(timeout=10)
except sparklog.errors.RetriableError:
    ...  # try again
except sparklog.errors.SparklogError as error:
    print(error.message, error.topic)
```

[../troubleshooting.md](../troubleshooting.md) explains messages by their words.

## Those that sparklog raises

Sorted by what the caller does next: an error stands below the group that it belongs to. *Retriable*: the same call may
work later. *Number*: in Kafka's protocol, `errno`.

"""

KAFKA_HEAD = """
## Those of Kafka that nothing here raises

They are there for programs that import and catch them.

"""


# -- docstrings


def markdown(docstring: str) -> str:
    """A docstring as Markdown."""
    blocks: list[str] = []
    for block in re.split(r"\n\n(?=\S)|\n\n(?= {4}\S)", docstring.strip("\n")):
        raises = re.match(r"(?s)Raises:\n(.+)", block)
        if raises:
            items = re.split(r"\n(?= {4}\S)", raises[1])
            blocks.append("Raises:\n\n" + "\n".join(f"* {_prose(inspect.cleandoc(item))}" for item in items))
        elif block.startswith(("    ", ">>> ")):  # indented, unless nothing but it follows the first line
            blocks.append(f"```python\n{inspect.cleandoc(block)}\n```")
        else:
            blocks.append(_prose(block))
    return "\n\n".join(blocks)


def _prose(text: str) -> str:
    return re.sub(r"``(.+?)``", r"`\1`", text.replace("\n    ", "\n  "))


def doc_of(thing: object) -> str:
    return inspect.getdoc(thing) or ""


def first_paragraph(thing: object) -> str:
    return " ".join(_prose(doc_of(thing).split("\n\n")[0]).split())


# -- signatures


class _Text:
    """Shown as it is by ``inspect``."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _annotation(given: Any) -> Any:
    if given is inspect.Parameter.empty:
        return given
    return _Text(given if isinstance(given, str) else inspect.formatannotation(given))


def _default(given: Any) -> Any:
    if given is inspect.Parameter.empty:
        return given
    shown = f"{type(given).__name__}.{given.name}" if isinstance(given, enum.Enum) else repr(given)
    return _Text("..." if " at 0x" in shown else shown)


def signature_of(name: str, function: Callable[..., Any]) -> str:
    """How a function is called, over several lines where one would be too long."""
    found = inspect.signature(function)
    parameters = [
        one.replace(annotation=_annotation(one.annotation), default=_default(one.default))
        for one in found.parameters.values()
        if one.name != "self"
    ]
    result = found.replace(parameters=parameters, return_annotation=_annotation(found.return_annotation))
    line = f"{name}{result}"
    if len(line) <= WIDTH:
        return line
    shown = [
        str(result.replace(parameters=[one], return_annotation=inspect.Signature.empty))[1:-1] for one in parameters
    ]
    lines: list[str] = []
    for one, text in zip(parameters, shown, strict=True):
        if one.kind is one.KEYWORD_ONLY:
            text = text.removeprefix("*, ")
            if "*" not in lines and not any(line.startswith("*") for line in lines):
                lines.append("*")
        lines.append(text.removesuffix(", /"))
    answer = line[line.rindex(") -> ") :] if ") -> " in line else ")"
    return f"{name}(\n" + "".join(f"    {text},\n" for text in lines) + answer


# -- the public names


def api() -> str:
    """docs/reference/api.md."""
    names = sorted((name for name in sparklog.__all__ if callable(getattr(sparklog, name))), key=_preference)
    firsts: dict[int, str] = {}
    for name in names:
        firsts.setdefault(id(getattr(sparklog, name)), name)
    chosen = sorted(name for name in firsts.values() if name != "SparklogError")
    classes = [name for name in chosen if inspect.isclass(getattr(sparklog, name))]
    functions = [name for name in chosen if name not in classes and name not in SPARK_FUNCTIONS]
    parts = [API_HEAD]
    for title, group in (("Functions", functions), ("Functions for Spark", SPARK_FUNCTIONS), ("Classes", classes)):
        parts.append(f"\n## {title}\n")
        parts += [_entry(name, getattr(sparklog, name)) for name in group]
    parts.append("\n## Plots\n\nFigures of matplotlib, which `pip install 'sparklog[plot]'` installs.\n")
    parts += [_entry(f"plot.{name}", getattr(sparklog.plot, name)) for name in sparklog.plot.__all__]
    parts.append("\n## Other names\n\n`sparklog.errors` is in [errors.md](errors.md), and `sparklog.kafka` has ")
    parts.append("kafka-python's modules ([../clients.md](../clients.md)). The same under other names:\n\n")
    for name in names:
        first = firsts[id(getattr(sparklog, name))]
        if first != name:
            parts.append(f"* `{name}`: `{first}`\n")
    return "".join(parts)


def _preference(name: str) -> tuple[bool, str]:
    """Of two names of one thing, that of kafka-python comes second."""
    return name.startswith("Kafka"), name


def _entry(name: str, thing: Any) -> str:
    parts = [f"\n### {name}\n"]
    fields = _fields(thing) if inspect.isclass(thing) else []
    if not inspect.isclass(thing):
        parts.append(f"\n```python\nsparklog.{signature_of(name, thing)}\n```\n")
    parts.append(f"\n{markdown(doc_of(thing))}\n")
    if not inspect.isclass(thing):
        return "".join(parts)
    if fields:
        parts.append("\nFields: " + ", ".join(f"`{field}`" for field in fields) + ".\n")
    parts += _arguments(thing)
    members = list(_members(thing, fields))
    if members:
        parts.append("\n| method or attribute | what it does |\n|---|---|\n")
        parts += [f"| {_cell(_call(member, value))} | {_cell(first_paragraph(value))} |\n" for member, value in members]
    for member, value in members:
        if "\n\n" in doc_of(value):
            parts.append(f"\n#### {name}.{member}\n\n{markdown(doc_of(value))}\n")
    return "".join(parts)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _call(name: str, value: Any) -> str:
    if isinstance(value, property) or not callable(value):
        return f"`{name}`"
    found = inspect.signature(value)
    shown = []
    for one in list(found.parameters.values()):
        if one.name in ("self", "cls"):
            continue
        star = "*" if one.kind is one.VAR_POSITIONAL else "**" if one.kind is one.VAR_KEYWORD else ""
        default = "" if one.default is one.empty else f"={_default(one.default)!r}"
        shown.append(f"{star}{one.name}{default}")
    return f"`{name}({', '.join(shown)})`"


def _fields(kind: Any) -> list[str]:
    """Of a tuple, a dataclass or an enumeration."""
    found = getattr(kind, "_fields", None) or getattr(kind, "__dataclass_fields__", None) or ()
    members = getattr(kind, "__members__", {})
    return [*found, *members]


def _arguments(kind: Any) -> Iterator[str]:
    """The keyword arguments of a client, from their types and defaults."""
    signature = inspect.signature(kind.__init__) if "__init__" in vars(kind) else inspect.Signature()
    for one in signature.parameters.values():
        found = re.fullmatch(r"Unpack\[(\w+)\]", str(one.annotation))
        if one.kind is one.VAR_KEYWORD and found:
            names = set(getattr(arguments, found[1]).__annotations__) & set(kind.DEFAULT_CONFIG) - SOCKET_ARGUMENTS
            yield "\nArguments, all by name; their types are in `sparklog.client.arguments`. Those of kafka-python for "
            yield "connections are taken too, and have no effect.\n\n"
            yield ", ".join(f"`{name}`" for name in sorted(names)) + ".\n"


def _members(kind: Any, fields: list[str]) -> Iterator[tuple[str, Any]]:
    """Public methods and properties that the package defines, with a docstring."""
    seen = set(fields)
    for base in kind.__mro__:
        if not base.__module__.startswith("sparklog."):
            continue
        for name in vars(base):
            value = inspect.getattr_static(kind, name)
            if name.startswith("_") or name in seen or not doc_of(getattr(kind, name)):
                continue
            seen.add(name)
            if isinstance(value, property) or inspect.isfunction(value):
                yield name, value
            elif isinstance(value, (classmethod, staticmethod)):
                yield name, getattr(kind, name)


# -- errors


def errors_page() -> str:
    """docs/reference/errors.md."""
    classes = {value for value in vars(errors).values() if inspect.isclass(value)}
    kinds = {value for value in classes if issubclass(value, errors.KafkaError)}
    unused = {value for value in kinds if value.__name__ in _defined(errors.kafka)}
    tree = doc_of(errors)
    order = re.findall(r"[|`]- (\w+)", tree)
    rows = [_error_row(getattr(errors, name)) for name in order]
    head = "| error | when | derives from | retriable | number |\n|---|---|---|---|---|\n"
    rest = sorted(kinds - unused - {getattr(errors, name) for name in order}, key=lambda kind: kind.__name__)
    bases = "\n### Groups across these, and bases\n\n" + head + "".join(_error_row(kind) for kind in rest)
    others = "".join(_error_row(kind) for kind in sorted(unused, key=lambda kind: kind.__name__))
    return ERRORS_HEAD + head + "".join(rows) + bases + KAFKA_HEAD + head + others


def _defined(module: Any) -> set[str]:
    return set(re.findall(r"^class (\w+)", Path(str(module.__file__)).read_text(encoding="utf-8"), re.MULTILINE))


def _error_row(kind: type[errors.KafkaError]) -> str:
    bases = ", ".join(f"`{base.__name__}`" for base in kind.__bases__ if base is not Exception)
    number = "" if kind.errno is None else str(kind.errno)
    retriable = "yes" if kind.retriable else ""
    return f"| `{kind.__name__}` | {_cell(first_paragraph(kind))} | {bases} | {retriable} | {number} |\n"


PAGES: dict[str, Callable[[], str]] = {"api.md": api, "errors.md": errors_page}


def main(check: bool) -> int:
    """Write the pages, or say which differ."""
    REFERENCE.mkdir(exist_ok=True)
    wrong = 0
    for name, page in PAGES.items():
        path, text = REFERENCE / name, page()
        if check:
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                wrong = 1
                print(f"docs/reference/{name} is not what the docstrings say: run python scripts/reference.py")
        else:
            path.write_text(text, encoding="utf-8")
    return wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a page is old")
    sys.exit(main(parser.parse_args().check))
