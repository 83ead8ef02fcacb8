"""JSON of a schema: parsed strictly, and printed compactly as it is stored.

Rules: the standard library only; the text is a user's. Not for: what a schema means (``avro_schema``, ``json_schema``).
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

from sparklog.schema.languages.ddl import InvalidSchemaError

MAX_SCHEMA_CHARACTERS = 100_000
"""Length of a schema's text: it is in every commit that changes it, and in the state."""


def is_json(text: str) -> bool:
    """Return whether a schema's text is JSON: a schema in DDL begins with a name."""
    return text.lstrip()[:1] in ("{", "[", '"')


def parse_json(text: str) -> dict[str, Any]:
    """Return the object that a text states. Raises InvalidSchemaError."""
    try:
        found = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidSchemaError(f"it is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise InvalidSchemaError("it is not a JSON object")
    return found


def format_json(schema: dict[str, Any]) -> str:
    """Return the compact text of a schema. Raises InvalidSchemaError for what JSON cannot state."""
    try:
        text = json.dumps(schema, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        text.encode()
    except ValueError as error:
        raise InvalidSchemaError(f"it is not JSON: {error}") from error
    return text


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
