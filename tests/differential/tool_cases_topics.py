"""kafka-topics, and sparklog topics."""

from __future__ import annotations

from tests.differential.cases import only, says, tools

tools(
    "topics-create-twice",
    "topics --create --topic $T",
    says("topics --create --topic $T", "already exists"),
    only("topics --list"),
)
