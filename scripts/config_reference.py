"""Write the definitions of settings as documents: ``conf/sparklog.properties``, the end of ``docs/configuration.md``,
and the list of settings without effect in ``docs/limits-and-guarantees.md``.

    python scripts/config_reference.py

A test fails where they differ. Not for: reading properties files (``sparklog.config.properties``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from sparklog.config.cluster_configs import CLUSTER_CONFIGS
from sparklog.config.definitions import ConfigDef
from sparklog.config.topic_configs import TOPIC_CONFIGS

ROOT = Path(__file__).resolve().parents[1]
PROPERTIES = ROOT / "conf" / "sparklog.properties"
DOCUMENT = ROOT / "docs" / "configuration.md"
LIMITS = ROOT / "docs" / "limits-and-guarantees.md"
TABLES = "## Topic configs\n"
SETTINGS = re.compile(r"(?<=\n)\| setting \|.*?\n(?=\n)", re.DOTALL)

_HEADER = """\
# Every setting at its default. Set them for a whole cluster with
#
#     sparklog configs --bootstrap-server ROOT --alter --broker-defaults --add-config-file sparklog.properties
#
# A setting in this file overrides the default, even if a later version changes that: keep only the lines you change.
# A commented-out line of the form #name= is a setting without a default.
"""

_TOPIC_HEADER = """\
# The following can only be set on a topic, so they are comments here:
#
#     sparklog configs --bootstrap-server ROOT --alter --topic TOPIC --add-config NAME=VALUE
#
# Each default above also has a topic config; docs/configuration.md lists them.
"""


def render_properties() -> str:
    """Return the text of ``conf/sparklog.properties``."""
    names = {synonym.name for definition in TOPIC_CONFIGS.values() for synonym in definition.synonyms}
    own = [definition for name, definition in CLUSTER_CONFIGS.items() if name not in names and not definition.internal]
    defaults = [definition for name, definition in CLUSTER_CONFIGS.items() if name in names]
    on_topics = [
        definition for definition in TOPIC_CONFIGS.values() if not definition.synonyms and not definition.internal
    ]
    parts = [
        _HEADER,
        "# ---- the cluster ----\n",
        *map(_render_setting, own),
        "# ---- defaults of topic configs ----\n",
        *map(_render_setting, defaults),
        "# ---- topics only ----\n",
        _TOPIC_HEADER,
        *(f"# {definition.description}\n#{definition.name}={definition.default or ''}\n" for definition in on_topics),
    ]
    return "\n".join(parts)


def _render_setting(definition: ConfigDef) -> str:
    mark = "#" if definition.default is None else ""
    return f"# {definition.description}\n{mark}{definition.name}={definition.default or ''}\n"


def render_topic_table() -> str:
    """Return the table of topic configs in ``docs/configuration.md``."""
    return _render_table(
        ["topic config", "type", "default", "takes", "cluster-level names, first wins", "effect", "what it does"],
        (
            [
                *_render_cells(definition),
                _render_synonyms(definition),
                _render_effect(definition),
                _render_doc(definition),
            ]
            for definition in TOPIC_CONFIGS.values()
            if not definition.internal
        ),
    )


def render_cluster_table() -> str:
    """Return the table of the cluster's own settings in ``docs/configuration.md``."""
    rows = (
        definition for definition in CLUSTER_CONFIGS.values() if not definition.synonyms and not definition.internal
    )
    return _render_table(
        ["cluster config", "type", "default", "takes", "effect", "what it does"],
        ([*_render_cells(definition), _render_effect(definition), _render_doc(definition)] for definition in rows),
    )


def _render_cells(definition: ConfigDef) -> list[str]:
    default = "none" if definition.default is None else f"`{definition.default}`" if definition.default else "empty"
    return [f"`{definition.name}`", definition.kind, default, definition.allowed]


def _render_synonyms(definition: ConfigDef) -> str:
    return ", ".join(f"`{synonym.name}`" for synonym in definition.synonyms) or "-"


def _render_effect(definition: ConfigDef) -> str:
    return "now" if definition.effective else "refused" if definition.refused else "stored"


def _render_doc(definition: ConfigDef) -> str:
    """Return what a setting does, and why it has no effect if so."""
    why = definition.refused or definition.unused
    return f"{definition.doc} {_render_reason(definition)}" if why else definition.doc


def render_without_effect() -> str:
    """Return the table of ``docs/limits-and-guarantees.md``: settings that are refused, or stored without effect."""
    definitions = {
        **TOPIC_CONFIGS,
        **{name: definition for name, definition in CLUSTER_CONFIGS.items() if not definition.synonyms},
    }
    rows = [definition for definition in definitions.values() if not definition.internal and not definition.effective]
    order = sorted(rows, key=lambda definition: not definition.refused)
    return _render_table(
        ["setting", "", "why"],
        ([f"`{definition.name}`", _render_effect(definition), _render_reason(definition)] for definition in order),
    )


def _render_reason(definition: ConfigDef) -> str:
    why = definition.refused or definition.unused
    return f"{why[0].upper()}{why[1:]}."


def _render_table(header: list[str], rows: Iterable[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def tables() -> str:
    """Return the end of ``docs/configuration.md``."""
    return f"{TABLES}\n{render_topic_table()}\n## Cluster configs\n\n{render_cluster_table()}"


if __name__ == "__main__":
    PROPERTIES.write_text(render_properties(), encoding="utf-8")
    document = DOCUMENT.read_text(encoding="utf-8")
    DOCUMENT.write_text(document.split(TABLES)[0] + tables(), encoding="utf-8")
    limits = LIMITS.read_text(encoding="utf-8")
    LIMITS.write_text(SETTINGS.sub(lambda _: render_without_effect(), limits), encoding="utf-8")
