"""The method of ``AdminClient`` for the schemas of topics. Kafka keeps these in a registry beside the cluster.

Schemas are changed with ``alter_configs``, since they are configs of a topic. Not for: numbering their versions
(``protocol.schema_versions``).
"""

from __future__ import annotations

from collections.abc import Iterable

from sparklog.client.admin.base import AdminBase, Result, as_list
from sparklog.client.admin.types import error_code
from sparklog.errors import UnknownTopicOrPartitionError
from sparklog.protocol.schema_versions import find_current
from sparklog.protocol.state import TopicState


class SchemaAdmin(AdminBase):
    """The method of ``AdminClient`` for schemas. Thread-safe."""

    def describe_schemas(self, topics: Iterable[str] | None = None) -> list[Result]:
        """Return all versions of the schemas of these topics, or of all topics that have any; a missing topic has an
        error code.

        A schema is identified by its config, ``value.schema`` or ``key.schema``; ``current_version`` is that of the
        config's present text, None if the config is not set. ``commit_version`` and ``timestamp_ms`` are of the commit
        that set a text first; ``registry_ids`` are its ids in schema registries.

            >>> typed = {"value.format": "json", "value.schema": "amount double"}
            >>> _ = admin.create_topics([sparklog.NewTopic("payments", topic_configs=typed)])
            >>> [payments] = admin.describe_schemas(["payments"])
            >>> [(version["version"], version["schema"]) for version in payments["schemas"][0]["versions"]]
            [(1, 'amount double')]
        """
        state = self.read_state()
        if topics is None:
            return [_describe(topic) for topic in state.topics_in_order() if topic.schemas]
        described = []
        for name in as_list(topics, "topics"):
            try:
                described.append(_describe(state.topic(name)))
            except UnknownTopicOrPartitionError as error:
                described.append({"error_code": error_code(error), "name": name, "schemas": []})
        return described


def _describe(topic: TopicState) -> Result:
    schemas = [
        {
            "config": config,
            "current_version": find_current(topic, config) or None,
            "versions": [
                {
                    "version": number,
                    "schema": schema.text,
                    "commit_version": schema.version,
                    "timestamp_ms": schema.timestamp_ms,
                    "registry_ids": list(schema.ids),
                }
                for number, schema in enumerate(versions, 1)
            ],
        }
        for config, versions in sorted(topic.schemas.items())
    ]
    return {"error_code": 0, "name": topic.name, "schemas": schemas}
