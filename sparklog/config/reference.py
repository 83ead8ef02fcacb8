"""Writes the tables of settings out for people: ``conf/sparklog.properties``, the end of ``docs/configuration.md``,
and the list of what has no effect in ``docs/limits-and-guarantees.md``.

All are made from the definitions, and a test fails where they differ. Not for: reading them (``properties``).
"""

from __future__ import annotations

from collections.abc import Iterable

from sparklog.config.cluster_configs import CLUSTER_CONFIGS
from sparklog.config.definitions import ConfigDef
from sparklog.config.topic_configs import TOPIC_CONFIGS

_HEADER = """\
# Every setting at its default. Set them for a whole cluster with
#
#     sparklog configs --bootstrap-server ROOT --alter --broker-defaults --add-config-file sparklog.properties
#
# A setting that is written down holds even if a later version has another default: keep the lines you change.
# A line that begins with #, then a name and =, is a setting that has no default.
"""

_TOPIC_HEADER = """\
# What follows can only be set on a topic, so it stands here as comments:
#
#     sparklog configs --bootstrap-server ROOT --alter --topic TOPIC --add-config NAME=VALUE
#
# Topics also have configs of their own for each default above; docs/configuration.md lists them.
"""


def render_properties() -> str:
    """The text of ``conf/sparklog.properties``."""
    names = {synonym.name for definition in TOPIC_CONFIGS.values() for synonym in definition.synonyms}
    own = [one for name, one in CLUSTER_CONFIGS.items() if name not in names and not one.internal]
    defaults = [one for name, one in CLUSTER_CONFIGS.items() if name in names]
    on_topics = [one for one in TOPIC_CONFIGS.values() if not one.synonyms and not one.internal]
    parts = [
        _HEADER,
        "# ---- the cluster ----\n",
        *map(_setting, own),
        "# ---- defaults of topic configs ----\n",
        *map(_setting, defaults),
        "# ---- topics only ----\n",
        _TOPIC_HEADER,
        *(f"# {one.description}\n#{one.name}={one.default or ''}\n" for one in on_topics),
    ]
    return "\n".join(parts)


def _setting(definition: ConfigDef) -> str:
    mark = "#" if definition.default is None else ""
    return f"# {definition.description}\n{mark}{definition.name}={definition.default or ''}\n"


def render_topic_table() -> str:
    """The table of topic configs in ``docs/configuration.md``."""
    return _table(
        ["topic config", "type", "default", "takes", "cluster-level names, first wins", "effect", "what it does"],
        ([*_cells(one), _names(one), _effect(one), _doc(one)] for one in TOPIC_CONFIGS.values() if not one.internal),
    )


def render_cluster_table() -> str:
    """The table of settings that concern the cluster itself in ``docs/configuration.md``."""
    rows = (one for one in CLUSTER_CONFIGS.values() if not one.synonyms and not one.internal)
    return _table(
        ["cluster config", "type", "default", "takes", "effect", "what it does"],
        ([*_cells(one), _effect(one), _doc(one)] for one in rows),
    )


def _cells(definition: ConfigDef) -> list[str]:
    default = "none" if definition.default is None else f"`{definition.default}`" if definition.default else "empty"
    return [f"`{definition.name}`", definition.kind, default, definition.allowed]


def _names(definition: ConfigDef) -> str:
    return ", ".join(f"`{synonym.name}`" for synonym in definition.synonyms) or "-"


def _effect(definition: ConfigDef) -> str:
    return "now" if definition.effective else "refused" if definition.refused else "stored"


def _doc(definition: ConfigDef) -> str:
    """What a setting does, or is meant to do, and why it does not."""
    why = definition.refused or definition.unused
    return f"{definition.doc} {_why(definition)}" if why else definition.doc


def render_without_effect() -> str:
    """The tables of ``docs/limits-and-guarantees.md``: what is refused, and what is stored and has no effect."""
    known = {**TOPIC_CONFIGS, **{name: one for name, one in CLUSTER_CONFIGS.items() if not one.synonyms}}
    rows = [one for one in known.values() if not one.internal and not one.effective]
    order = sorted(rows, key=lambda one: not one.refused)
    return _table(["setting", "", "why"], ([f"`{one.name}`", _effect(one), _why(one)] for one in order))


def _why(definition: ConfigDef) -> str:
    why = definition.refused or definition.unused
    return f"{why[0].upper()}{why[1:]}."


def _table(header: list[str], rows: Iterable[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
