"""Definition of a setting: its type, default, bounds and synonyms, and how its values are parsed and printed.

The parsing rules are those of Kafka's ``ConfigDef.parseType``: numbers and booleans may have blanks around them,
booleans any case, lists are separated by commas. A canonical value is the text that is stored and shown.

Rules: values come from users and from stored commits, so everything is checked and every message names the setting,
the given value and the allowed values. Not for: which settings exist (``topic_configs``, ``cluster_configs``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, NamedTuple

from sparklog.config.properties import trim
from sparklog.errors import InvalidConfigurationError
from sparklog.errors.suggestions import nearest_name
from sparklog.schema.languages.ddl import InvalidSchemaError
from sparklog.schema.languages.record_schema import parse_schema
from sparklog.types import number as as_number
from sparklog.types import whole

ConfigKind = Literal["boolean", "int", "long", "double", "string", "list"]
ConfigValue = bool | int | float | str | tuple[str, ...] | None
"""A parsed value: by type bool, int (int and long), float, str or a tuple of str; None where there is no default."""

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
DOUBLE_MAX = "1.7976931348623157E308"

DYNAMIC_TOPIC_CONFIG = "DYNAMIC_TOPIC_CONFIG"
DYNAMIC_DEFAULT_BROKER_CONFIG = "DYNAMIC_DEFAULT_BROKER_CONFIG"
DEFAULT_CONFIG = "DEFAULT_CONFIG"
"""Sources of a value, in Kafka's names: set on the topic, set for the cluster, or the default."""

_WHOLE_BOUNDS = {"int": (-INT_MAX - 1, INT_MAX), "long": (-LONG_MAX - 1, LONG_MAX)}
_WHOLE = re.compile(r"[+-]?[0-9]{1,40}\Z")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\Z")
_THROTTLED_REPLICA = re.compile(r"[0-9]+:[0-9]+\Z")
_SHOWN_CHARACTERS = 100
_PLAIN = re.compile(r"[A-Za-z0-9._+-]{1,60}")


class Synonym(NamedTuple):
    """A cluster-level name for the default of a topic config.

    ``unit`` is the synonym's unit in units of the topic config (log.retention.hours: 3,600,000 ms). ``default`` is the
    synonym's own default, None where it has none.
    """

    name: str
    unit: int = 1
    default: str | None = None


class ConfigSynonym(NamedTuple):
    """One source of a setting's value: the source, the name used there, and the value in that name's unit."""

    source: str
    name: str
    value: str


class ConfigEntry(NamedTuple):
    """A setting as ``configs --describe`` shows it; ``str`` returns Kafka's line, without the two blanks before it."""

    name: str
    value: str | None
    source: str
    synonyms: tuple[ConfigSynonym, ...]

    def __str__(self) -> str:
        synonyms = ", ".join(f"{source}:{name}={value}" for source, name, value in self.synonyms)
        value = "null" if self.value is None else self.value
        return f"{self.name}={value} sensitive=false synonyms={{{synonyms}}}"


@dataclass(frozen=True)
class ConfigDef:
    """One setting. Immutable, picklable.

    ``default`` is canonical text, None for no default. ``minimum`` and ``maximum`` are inclusive; ``also`` is allowed
    as well. ``choices`` are the allowed strings or list items; ``schema``: the text is one. ``doc`` is one sentence in
    plain words. Of a setting without effect, ``unused`` says why it is only stored and shown, or ``refused`` why it
    has to stay at its default.
    """

    name: str
    kind: ConfigKind
    default: str | None
    doc: str
    minimum: int | float | None = None
    maximum: int | float | None = None
    also: int | None = None
    choices: tuple[str, ...] = ()
    throttled_replicas: bool = False
    schema: bool = False
    synonyms: tuple[Synonym, ...] = ()
    unused: str = ""
    refused: str = ""
    internal: bool = False

    @property
    def effective(self) -> bool:
        """Whether the setting has an effect."""
        return not (self.unused or self.refused)

    @property
    def description(self) -> str:
        """``doc``, and a sentence that says whether the setting has an effect."""
        if self.refused:
            return f"{self.doc} Refused unless it is at its default: {self.refused}."
        effect = "Takes effect now." if self.effective else f"Stored and shown, has no effect here: {self.unused}."
        return f"{self.doc} {effect}"

    @property
    def allowed(self) -> str:
        """The allowed values, as the end of a sentence."""
        if self.kind == "boolean":
            return "true or false"
        if self.throttled_replicas:
            return "'*', or a list of partition:broker pairs such as 0:1,1:0"
        if self.kind == "list":
            return (
                f"a comma-separated list of {' and '.join(self.choices)}" if self.choices else "a comma-separated list"
            )
        if self.schema:
            return "Spark's DDL, such as `customer string, amount double`, a JSON Schema, or an Avro schema"
        if self.kind == "string":
            return f"one of {', '.join(self.choices)}" if self.choices else "text"
        return f"{'a number' if self.kind == 'double' else 'a whole number'} {self._describe_range()}"

    def _describe_range(self) -> str:
        low, high = self.bounds
        also = "" if self.also is None else f", or {self.also}"
        if low == -math.inf and high == math.inf:
            return "of any size"
        if high == math.inf:
            return f"not below {low}{also}"
        return f"from {low} to {high}{also}"

    @property
    def bounds(self) -> tuple[int | float, int | float]:
        """The smallest and the largest number, inclusive, within the type's own range."""
        low, high = _WHOLE_BOUNDS.get(self.kind, (-math.inf, math.inf))
        return (low if self.minimum is None else self.minimum, high if self.maximum is None else self.maximum)

    def parse(self, value: object) -> ConfigValue:
        """Return the typed value of text, or of a value of the right type. Raises InvalidConfigurationError for a wrong
        type, a value out of bounds, or one that is not among the choices."""
        if value is None:
            raise self.error(value, "it has no value (to restore the default, delete the setting)")
        if isinstance(value, str):
            value = trim(value)
        if self.kind == "boolean":
            return self._parse_boolean(value)
        if self.kind in ("int", "long"):
            return self._parse_whole(value)
        if self.kind == "double":
            return self._parse_double(value)
        if self.kind == "list":
            return self._parse_list(value)
        return self._parse_string(value)

    def canonical(self, value: object) -> str:
        """Return the text that is stored and shown for ``value``. Raises as ``parse``."""
        return canonical_text(self.parse(value))

    def default_value(self) -> ConfigValue:
        """Return the typed default, None where there is none."""
        return None if self.default is None else self.parse(self.default)

    def error(self, value: object, reason: str) -> InvalidConfigurationError:
        """Return the error for an invalid ``value`` of this setting."""
        message = f"Invalid value {_quote(value)} for configuration {self.name}: {reason}; it takes {self.allowed}."
        return InvalidConfigurationError(message, config=self.name, value=value)

    def _parse_boolean(self, value: object) -> bool:
        if isinstance(value, bool):
            return value
        word = value.strip().lower() if isinstance(value, str) else ""
        if word not in ("true", "false"):
            raise self.error(value, "it is neither true nor false")
        return word == "true"

    def _parse_whole(self, value: object) -> int:
        if isinstance(value, str) and _WHOLE.match(value.strip()):
            number = int(value.strip())
        elif (given := whole(value)) is not None:
            number = given
        else:
            raise self.error(value, "it is not a whole number")
        self._check_range(value, number)
        return number

    def _parse_double(self, value: object) -> float:
        if isinstance(value, str) and len(value) <= _SHOWN_CHARACTERS and _NUMBER.match(value.strip()):
            number = float(value.strip())
        elif (given := as_number(value)) is not None and math.isfinite(given):
            number = float(given)
        else:
            raise self.error(value, "it is not a number")
        if math.isinf(number):
            raise self.error(value, "it is too large for a double")
        self._check_range(value, number)
        return number

    def _check_range(self, value: object, number: int | float) -> None:
        low, high = self.bounds
        if not low <= number <= high and number != self.also:
            raise self.error(value, "it is out of range")

    def _parse_list(self, value: object) -> tuple[str, ...]:
        if isinstance(value, str):
            items = tuple(item.strip() for item in value.split(",")) if value.strip() else ()
        elif isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
            items = tuple(item.strip() for item in value)
        else:
            raise self.error(value, "it is not a list")
        self._check_items(value, items)
        return items

    def _check_items(self, value: object, items: tuple[str, ...]) -> None:
        if self.throttled_replicas:
            if items != ("*",) and not all(_THROTTLED_REPLICA.match(item) for item in items):
                raise self.error(value, "an item is not of that form")
            return
        wrong = next((item for item in items if not item or (self.choices and item not in self.choices)), None)
        if wrong is not None:
            raise self.error(value, f"the item {wrong!a} is not allowed" if wrong else "an item is empty")
        if len(set(items)) < len(items):
            raise self.error(value, "an item occurs twice")

    def _parse_string(self, value: object) -> str:
        if not isinstance(value, str):
            raise self.error(value, f"it is of type {type(value).__name__}, not text")
        if self.choices and value not in self.choices:
            raise self.error(value, f"there is no such choice{_suggest(value, self.choices)}")
        return self._parse_schema(value) if self.schema else value

    def _parse_schema(self, value: str) -> str:
        try:
            return parse_schema(value).text
        except InvalidSchemaError as error:
            end = "" if str(error).endswith("?") else "."
            message = f"Invalid value {_quote(value)} for configuration {self.name}: {error}{end} "
            raise InvalidConfigurationError(
                f"{message}docs/typed-topics.md shows what a schema can have.", config=self.name, value=value
            ) from error


def canonical_text(value: ConfigValue) -> str:
    """Return a parsed value as text, as Kafka's ``ConfigDef.convertToString`` does."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        return _format_java_double(value)
    return str(value)


def canonical_configs(
    configs: Mapping[str, object], definitions: Mapping[str, ConfigDef], level: str, not_settable: Mapping[str, str]
) -> dict[str, str]:
    """Validate each setting by its definition and return canonical texts, in the order given.

    ``level`` names the kind of setting in messages. ``not_settable`` maps known names that cannot be set to the reason.
    Raises InvalidConfigurationError for an unknown name (the message has the nearest known one), or an invalid value.
    """
    canonical: dict[str, str] = {}
    for name, value in configs.items():
        definition = definitions.get(name)
        if definition is None:
            raise unknown_name(name, definitions, level, not_settable)
        canonical[name] = definition.canonical(value)
    return canonical


def unknown_name(
    name: object, definitions: Mapping[str, ConfigDef], level: str, not_settable: Mapping[str, str]
) -> InvalidConfigurationError:
    """Return the error for a setting that does not exist."""
    reason = not_settable.get(name) if isinstance(name, str) else None
    if reason is not None:
        return InvalidConfigurationError(f"Unknown {level} config name: {name} ({reason}).", config=name)
    public_names = [known for known, definition in definitions.items() if not definition.internal]
    hint = _suggest(name, public_names) if isinstance(name, str) else ""
    return InvalidConfigurationError(f"Unknown {level} config name: {_quote(name)}{hint}.", config=name)


def _quote(value: object) -> str:
    """Return a plain word unquoted, as in Kafka's messages; anything else quoted, in ASCII and truncated."""
    if isinstance(value, str) and _PLAIN.fullmatch(value):
        return value
    shown = ascii(value)
    return shown if len(shown) <= _SHOWN_CHARACTERS else f"{shown[:_SHOWN_CHARACTERS]}..."


def cluster_chain(synonyms: Sequence[Synonym], cluster: Mapping[str, str]) -> list[ConfigSynonym]:
    """Return the cluster's values under these names: first those that are set, then the defaults, each in order."""
    chain = [
        ConfigSynonym(DYNAMIC_DEFAULT_BROKER_CONFIG, synonym.name, cluster[synonym.name])
        for synonym in synonyms
        if synonym.name in cluster
    ]
    chain += [
        ConfigSynonym(DEFAULT_CONFIG, synonym.name, synonym.default)
        for synonym in synonyms
        if synonym.default is not None
    ]
    return chain


def _suggest(word: str, known: Iterable[str]) -> str:
    name = nearest_name(word, known)
    return f" (did you mean {name}?)" if name else ""


def _format_java_double(value: float) -> str:
    """Format as ``Double.toString``: a plain decimal from 0.001 to 10,000,000, else one digit, a point, an exponent."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return str(value)
    mantissa, _, exponent = f"{Decimal(repr(value)).normalize():E}".partition("E")
    return f"{mantissa if '.' in mantissa else f'{mantissa}.0'}E{int(exponent)}"
