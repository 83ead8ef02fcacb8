"""Writes the documents of ``--json`` out for people and for validators: docs/cli-json.md and docs/cli-json.schema.json.

Both are made from the structs of ``documents``, and a test fails where they differ. Not for: printing documents.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from sparklog.cli.documents import DOCUMENTS

HEAD = """\
# JSON from the command line

Every command that lists, describes or measures something takes `--json`. It then prints one JSON object on one line of
ASCII to standard output, and nothing else there. `maintain --loop --json` prints one object a line, whenever there is
something to say, `dump-log --json` one a line as it reads, and `fsck --json` one over several lines. Errors and notes
stay on standard error, and exit codes are those without `--json` ([cli.md](cli.md#exit-codes-and-errors)). A command
that fails prints no object, unless its section says otherwise.

    $ sparklog brokers list --json | jq -r '.brokers[] | select(.state != "online") | .location'

Names are snake_case, with the unit last (`_ms`, `_bytes`); times are milliseconds since 1970, UTC. What is not known or
does not apply is `null`. Later versions may add fields; none is renamed, removed or given another meaning. `log-dirs`
has Kafka's own document, with Kafka's names, and `fsck` writes "does not apply" as -1 or as an empty text
([repair.md](repair.md)).

[cli-json.schema.json](cli-json.schema.json) is a JSON Schema (2020-12) of every object, under the names below:
`#/$defs/TopicDescriptions` and so on. Both files are made from the structs that the commands print, by
`python scripts/write_cli_json.py`.
"""


def schema() -> dict[str, Any]:
    """The JSON Schema: a definition for every document and everything within."""
    _, definitions = msgspec.json.schema_components(DOCUMENTS.values(), ref_template="#/$defs/{name}")
    for definition in definitions.values():
        definition["description"] = _first_paragraph(definition)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What sparklog's commands print with --json",
        "$comment": "Made by scripts/write_cli_json.py from sparklog/cli/documents.py.",
        "$defs": {name: definitions[name] for name in sorted(definitions)},
    }


def render_schema() -> str:
    """The text of docs/cli-json.schema.json."""
    return json.dumps(schema(), indent=1) + "\n"


def render_document() -> str:
    """The text of docs/cli-json.md."""
    definitions = schema()["$defs"]
    parts = [HEAD]
    shown: set[str] = set()
    for command, document in DOCUMENTS.items():
        name = document.__name__
        parts.append(f"\n## {command}\n\n`{name}`. {_one_line(definitions[name]['description'])}\n")
        for inner in _within(name, definitions):
            if inner != name and inner in shown:
                continue
            shown.add(inner)
            if inner != name:
                parts.append(f"\n`{inner}`: {_one_line(definitions[inner]['description'])}\n")
            parts.append(f"\n{_table(definitions[inner])}")
    return "".join(parts)


def _within(name: str, definitions: dict[str, Any]) -> list[str]:
    """The definition itself and those that it refers to, in the order in which they are met."""
    found = [name]
    for one in found:
        found += [other for other in _references(definitions[one]["properties"]) if other not in found]
    return found


def _references(node: Any) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"].rpartition("/")[2]] if "$ref" in node else []
        return own + [name for value in node.values() for name in _references(value)]
    return [name for value in node for name in _references(value)] if isinstance(node, list) else []


def _table(definition: dict[str, Any]) -> str:
    rows = ["| field | type | what it is |\n| --- | --- | --- |\n"]
    for field, node in definition["properties"].items():
        elsewhere = "see below" if _references(node) else "see [repair.md](repair.md)"
        rows.append(f"| `{field}` | {_type(node)} | {node.get('description', elsewhere)} |\n")
    return "".join(rows)


def _type(node: dict[str, Any]) -> str:
    """A type in words: ``integer or null``, ``list of PartitionDetails``."""
    if "$ref" in node:
        return f"`{node['$ref'].rpartition('/')[2]}`"
    if "anyOf" in node:
        return " or ".join(map(_type, node["anyOf"]))
    if "enum" in node:
        return " or ".join(f'`"{word}"`' for word in node["enum"])
    if node["type"] == "array":
        return f"list of {_type(node['items'])}"
    if node["type"] == "object":
        return f"object of {_type(node['additionalProperties'])} by name"
    return str(node["type"])


def _first_paragraph(definition: dict[str, Any]) -> str:
    return " ".join(str(definition.get("description", "")).split("\n\n")[0].split()).replace("``", "`")


def _one_line(text: str) -> str:
    return " ".join(text.split())
