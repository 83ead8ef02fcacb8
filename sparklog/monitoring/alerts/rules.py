"""Rules of alerts: what they may say, and how their text becomes ``Rule`` and ``Channel``.

    book = read_rules({"rule": [{"name": "behind", "kind": "lag", "above": 1000}]}, environ)

A rule has a kind, which says what is measured and of what (``KINDS``), a threshold, and how long it has to be passed.

Rules: pure. Everything is checked before anything is returned, and an error names the rule, the key and what it may be.
Not for: measuring (``measures``), the file (``rule_file``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from sparklog.errors import InvalidConfigurationError
from sparklog.errors.suggestions import did_you_mean
from sparklog.monitoring.alerts.channels_of_file import Channel, read_channel
from sparklog.monitoring.alerts.quantities import Unit, parse

SEVERITIES = ("info", "warning", "critical")
STEPS = ("roll", "retention", "deletion")
"""Steps of maintenance of which it is known from the log when they were due."""
MAX_RULES = 1000
MAX_NAME = 100
DEFAULT_INTERVAL_SECONDS = 60.0
MIN_INTERVAL_SECONDS = 1.0


class Patterns(NamedTuple):
    """Which names a rule is about: shell patterns, of which those with ``!`` leave names out."""

    texts: tuple[str, ...] = ("*",)

    def match(self, name: str) -> bool:
        """Return whether a name matches a pattern, and none that leaves it out."""
        wanted = [text for text in self.texts if not text.startswith("!")] or ["*"]
        left_out = (text[1:] for text in self.texts if text.startswith("!"))
        return any(fnmatchcase(name, text) for text in wanted) and not any(fnmatchcase(name, text) for text in left_out)


class Kind(NamedTuple):
    """What a kind of rule measures, per ``subject``, in which unit; the threshold that a rule without one has (None: it
    must have one); and the further keys that it takes."""

    meaning: str
    subject: tuple[str, ...]
    unit: Unit
    above: float | None = None
    keys: tuple[str, ...] = ()


KINDS: dict[str, Kind] = {
    "lag": Kind("records that a group is behind in a topic", ("group", "topic"), Unit.COUNT),
    "lag_seconds": Kind("age of the oldest unread record, counted from its commit", ("group", "topic"), Unit.SECONDS),
    "lag_rising": Kind(
        "records by which the lag has grown without ever falling", ("group", "topic"), Unit.COUNT, 0.0, ("over",)
    ),
    "no_commit": Kind("time since a group last committed an offset", ("group",), Unit.SECONDS),
    "no_progress": Kind(
        "time for which records have waited for a group that does not move", ("group", "topic"), Unit.SECONDS
    ),
    "isr": Kind("partitions with fewer replicas in sync than wanted", ("topic",), Unit.COUNT, 0.0, ("below",)),
    "leaderless": Kind("partitions without a leader", ("topic",), Unit.COUNT, 0.0),
    "offline": Kind("1 for a location that is offline", ("broker",), Unit.COUNT, 0.0),
    "maintenance": Kind(
        "files that a step of maintenance should have dealt with", ("step", "topic"), Unit.COUNT, 0.0, ("late",)
    ),
    "unfit": Kind("records in history that do not fit the schema", ("topic",), Unit.COUNT, 0.0),
    "topic_bytes": Kind("bytes of a topic at all its replicas in sync", ("topic",), Unit.BYTES),
    "retired_bytes": Kind("bytes of retired files that are not deleted yet", (), Unit.BYTES),
    "commit_rate": Kind("commits within a time", (), Unit.COUNT, None, ("over",)),
    "commits_kept": Kind("commits that are stored", (), Unit.COUNT),
    "stopped": Kind("time since an application, such as a streaming query, last wrote", ("application",), Unit.SECONDS),
}
"""What can be watched, by the word that rules call it."""


class Rule(NamedTuple):
    """A rule, checked. Durations are in seconds, thresholds in the unit of its kind.

    A value above ``above`` for ``hold`` fires; then a value of at most ``clear`` for ``keep`` resolves it. ``over`` and
    ``late`` belong to kinds that look back; ``below`` is the number of replicas in sync, 0 for all of them.
    """

    name: str
    kind: str
    above: float
    clear: float
    hold: float = 0.0
    keep: float = 0.0
    severity: str = "warning"
    description: str = ""
    notify: tuple[str, ...] = ()
    patterns: Mapping[str, Patterns] = {}
    over: float = 1800.0
    late: float = 21_600.0
    below: int = 0

    @property
    def unit(self) -> Unit:
        return KINDS[self.kind].unit

    def wants(self, **names: str) -> bool:
        """Return whether these names, by what they name, match the rule's patterns."""
        return all(self.patterns.get(what, Patterns()).match(name) for what, name in names.items())


class RuleBook(NamedTuple):
    """All that a file of rules says: the rules, the channels by name, and how often a loop evaluates them."""

    rules: tuple[Rule, ...]
    channels: Mapping[str, Channel] = {}
    interval_seconds: float = DEFAULT_INTERVAL_SECONDS


def read_rules(content: Mapping[str, Any], environ: Mapping[str, str]) -> RuleBook:
    """Return what a file of rules says. ``environ`` has the secrets that it names.

    Raises InvalidConfigurationError for anything that is not valid.
    """
    _refuse_unknown("the file", content, ("interval", "rule", "channel"))
    interval = _quantity("the file", content, "interval", Unit.SECONDS, DEFAULT_INTERVAL_SECONDS)
    if interval < MIN_INTERVAL_SECONDS:
        raise _invalid("the file", "interval", content["interval"], "must be at least 1s")
    given = content.get("channel", {})
    if not isinstance(given, Mapping):
        raise _invalid("the file", "channel", given, "write it as [channel.NAME]")
    channels = {name: read_channel(name, channel, environ) for name, channel in given.items()}
    rules = content.get("rule", [])
    if not isinstance(rules, list) or not all(isinstance(rule, Mapping) for rule in rules):
        raise _invalid("the file", "rule", rules, "write each rule as [[rule]]")
    if not 0 < len(rules) <= MAX_RULES:
        raise InvalidConfigurationError(f"the file has {len(rules)} rules: must be 1 to {MAX_RULES}", config="rule")
    read = tuple(_read_rule(number, rule, channels) for number, rule in enumerate(rules, 1))
    names = [rule.name for rule in read]
    for name in names:
        if names.count(name) > 1:
            raise InvalidConfigurationError(f"two rules are called {name!r}: names must differ", config="name")
    return RuleBook(read, channels, interval)


_COMMON = ("name", "kind", "for", "keep_firing_for", "severity", "description", "notify", "clear", "above")


def _read_rule(number: int, rule: Mapping[str, Any], channels: Mapping[str, Channel]) -> Rule:
    name = rule.get("name")
    where = f"rule {number}" if not isinstance(name, str) else f"rule {name!r}"
    if name is None:
        raise InvalidConfigurationError(f"{where}: name is missing", config="name")
    if not isinstance(name, str) or not name.strip() or len(name) > MAX_NAME or not name.isprintable():
        raise _invalid(where, "name", name, f"must be a printable text of at most {MAX_NAME} characters")
    word = _choice(where, rule, "kind", KINDS, None)
    kind = KINDS[word]
    _refuse_unknown(where, rule, (*_COMMON, *kind.subject, *kind.keys), f"a rule of kind {word}")
    if kind.above is None and "above" not in rule:
        raise InvalidConfigurationError(
            f"{where}: above is missing: the {kind.meaning}, {kind.unit.value}", config="above"
        )
    above = _quantity(where, rule, "above", kind.unit, kind.above or 0.0)
    clear = _quantity(where, rule, "clear", kind.unit, above)
    if clear > above:
        raise _invalid(where, "clear", rule["clear"], "must not be more than above, or it would resolve while it fires")
    defaults = Rule(name, word, above, clear)
    read = defaults._replace(
        hold=_quantity(where, rule, "for", Unit.SECONDS, 0.0),
        keep=_quantity(where, rule, "keep_firing_for", Unit.SECONDS, 0.0),
        severity=_choice(where, rule, "severity", SEVERITIES, "warning"),
        description=_text(where, rule, "description"),
        notify=_notify(where, rule, channels),
        patterns={what: _patterns(where, rule, what) for what in kind.subject if what in rule},
        over=_quantity(where, rule, "over", Unit.SECONDS, defaults.over),
        late=_quantity(where, rule, "late", Unit.SECONDS, defaults.late),
        below=_below(where, rule),
    )
    if read.over < 1:
        raise _invalid(where, "over", rule["over"], "must be at least 1s")
    return read


def _refuse_unknown(where: str, given: Mapping[str, Any], known: Iterable[str], what: str = "it") -> None:
    names = tuple(known)
    for key in given:
        if key not in names:
            raise InvalidConfigurationError(
                f"{where}: unknown key {key!r}{did_you_mean(key, names)}; {what} takes {', '.join(names)}", config=key
            )


def _invalid(where: str, key: str, value: object, why: str) -> InvalidConfigurationError:
    return InvalidConfigurationError(f"{where}: invalid {key} {value!r}: {why}", config=key)


def _quantity(where: str, given: Mapping[str, Any], key: str, unit: Unit, default: float) -> float:
    if key not in given:
        return default
    try:
        return parse(given[key], unit)
    except ValueError as error:
        raise _invalid(where, key, given[key], str(error)) from None


def _choice(where: str, given: Mapping[str, Any], key: str, known: Iterable[str], default: str | None) -> str:
    names = tuple(known)
    value = given.get(key, default)
    if value is None:
        raise InvalidConfigurationError(f"{where}: {key} is missing: one of {', '.join(names)}", config=key)
    if not isinstance(value, str) or value not in names:
        hint = did_you_mean(str(value), names)
        raise _invalid(where, key, value, f"must be one of {', '.join(names)}{hint}")
    return value


def _text(where: str, given: Mapping[str, Any], key: str) -> str:
    value = given.get(key, "")
    if not isinstance(value, str):
        raise _invalid(where, key, value, "must be a text")
    return value


def _patterns(where: str, given: Mapping[str, Any], key: str) -> Patterns:
    value = given[key]
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) and text.strip("!") for text in texts):
        raise _invalid(where, key, value, 'must be a pattern such as "orders-*", or a list of them')
    if key == "step":
        for text in texts:
            if not any(fnmatchcase(step, text.removeprefix("!")) for step in STEPS):
                raise _invalid(where, key, text, f"matches none of {', '.join(STEPS)}{did_you_mean(text, STEPS)}")
    return Patterns(tuple(texts))


def _notify(where: str, given: Mapping[str, Any], channels: Mapping[str, Channel]) -> tuple[str, ...]:
    value = given.get("notify", list(channels))
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise _invalid(where, "notify", value, "must be the name of a channel, or a list of names")
    for name in names:
        if name not in channels:
            known = f"the file has {', '.join(channels)}" if channels else "the file has no [channel.NAME]"
            raise _invalid(where, "notify", name, f"there is no such channel{did_you_mean(name, channels)}; {known}")
    return tuple(dict.fromkeys(names))


def _below(where: str, given: Mapping[str, Any]) -> int:
    value = given.get("below", "replicas")
    if value == "replicas":
        return 0
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise _invalid(where, "below", value, 'must be "replicas", for all of them, or a number of at least 1')
    return value
