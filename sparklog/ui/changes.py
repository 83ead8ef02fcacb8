"""Changes from the web page: a form, then a page that says what will happen, then the change.

    plan = CHANGES["delete-topic"].plan(visit, admin, {"topic": "orders", "name": "orders"})
    plan.effects        # ["Topic orders with 8 partitions …"]

What is confirmed is what happens: the confirmation carries a digest of the plan, and if that would say something else
by then, it is shown again.

Rules: only through AdminClient, Producer and maintenance, which decide. Nothing happens before the confirmation.
Not for: who may change something (``guard``, ``app``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import NamedTuple

from sparklog.client.admin.client import AdminClient
from sparklog.client.admin.groups import OffsetSpecs
from sparklog.client.admin.types import ConfigResource, NewPartitions, NewTopic, OffsetSpec, OffsetTimestamp
from sparklog.client.producer.producer import Producer
from sparklog.config.cluster_configs import ClusterConfig
from sparklog.config.topic_configs import TopicConfig
from sparklog.config.typed_configs import TypedConfigs
from sparklog.errors import GroupIdNotFoundError, InvalidConfigurationError, NonEmptyGroupError
from sparklog.monitoring.arguments import parse_time
from sparklog.monitoring.facts.topics import topic_facts
from sparklog.protocol.state import PartitionState
from sparklog.types import TopicPartition
from sparklog.ui.maintenance_pass import PASS_STEPS, list_due
from sparklog.ui.site import Visit
from sparklog.ui.views.maintenance import due_sentences
from sparklog.ui.views.query import address
from sparklog.ui.views.text import number, plural, shown, size

Form = Mapping[str, str]
"""The fields of a form. Untrusted."""

_POSITIONS = ("earliest", "latest", "time", "offset")


class Field(NamedTuple):
    """A field of a form: its ``kind`` is text, area, or hidden; with ``choices`` it is a selection."""

    name: str
    label: str
    kind: str = "text"
    hint: str = ""
    choices: tuple[str, ...] = ()


class ChangePlan(NamedTuple):
    """What a change will do, in sentences, and where its result shows. ``is_final``: it cannot be undone.

    ``estimates`` say more, but may change all the time: they are not what is confirmed. ``topic_ids`` are those of the
    topics that it changes: another one may have a topic's name by the time of the confirmation.
    """

    effects: list[str]
    href: str
    is_final: bool = False
    estimates: tuple[str, ...] = ()
    topic_ids: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        return hashlib.sha256("\n".join([*self.effects, *self.topic_ids]).encode("utf-8", "replace")).hexdigest()


class PlannedChange(NamedTuple):
    """A kind of change. ``plan`` checks the form and raises SparklogError; ``execute`` returns what happened."""

    title: str
    button: str
    fields: tuple[Field, ...]
    plan: Callable[[Visit, AdminClient, Form], ChangePlan]
    execute: Callable[[Visit, AdminClient, Form], str]


def _invalid(name: str, reason: str) -> InvalidConfigurationError:
    return InvalidConfigurationError(f"invalid {name}: {reason}", config=name)


def _whole(form: Form, name: str, default: int | None = None) -> int:
    text = form.get(name, "").strip()
    if not text and default is not None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise _invalid(name, "give a whole number")
    return int(text)


def _pairs(text: str, name: str, separator: str = "=") -> list[tuple[str, str]]:
    """Return the ``name=value`` lines of a text."""
    pairs = []
    for line in filter(None, map(str.strip, text.splitlines())):
        key, found, value = line.partition(separator)
        if not found or not key.strip():
            raise _invalid(name, f"{line[:80]!r} is not of the form name{separator}value")
        pairs.append((key.strip(), value.strip()))
    return pairs


# -- topics


def _new_topic(form: Form) -> NewTopic:
    return NewTopic(
        form.get("topic", "").strip(),
        num_partitions=_whole(form, "partitions", 1),
        replication_factor=_whole(form, "replicas", 1),
        topic_configs=dict(_pairs(form.get("configs", ""), "configs")),
    )


def _plan_topic(visit: Visit, admin: AdminClient, form: Form) -> ChangePlan:
    topic = _new_topic(form)
    admin.create_topics([topic], validate_only=True)
    effects = [
        f"Topic {shown(topic.name)} is created with {plural(topic.num_partitions, 'partition')}, "
        f"{plural(topic.replication_factor, 'replica')} each."
    ]
    effects += [f"Its {shown(name)} is {shown(value, 100)}." for name, value in (topic.topic_configs or {}).items()]
    return ChangePlan(effects, address(visit.name, "topics", topic.name))


def _create_topic(visit: Visit, admin: AdminClient, form: Form) -> str:
    topic = _new_topic(form)
    admin.create_topics([topic])
    return f"Topic {shown(topic.name)} was created."


def _plan_deletion(visit: Visit, admin: AdminClient, form: Form) -> ChangePlan:
    topic = visit.state.topic(form.get("topic", ""))
    if form.get("name", "").strip() != topic.name:
        raise _invalid("name", f"type the name of the topic, {topic.name}, to delete it")
    facts = topic_facts(topic)
    groups = sorted(visit.state.indexes.offsets.get(topic.topic_id, {}))
    effects = [
        f"Topic {topic.name} is deleted: {plural(facts.partitions, 'partition')}, {number(facts.offsets)} offsets, "
        f"{size(facts.bytes)}.",
        "Its records are gone; maintenance deletes their files. This cannot be undone.",
    ]
    if groups:
        names = ", ".join(shown(group, 60) for group in groups[:10])
        effects.append(f"The offsets of {plural(len(groups), 'group')} in it no longer count: {names}.")
    return ChangePlan(effects, address(visit.name, "topics"), is_final=True, topic_ids=(topic.topic_id,))


def _delete_topic(visit: Visit, admin: AdminClient, form: Form) -> str:
    admin.delete_topics([form["topic"]])
    return f"Topic {shown(form['topic'])} was deleted."


def _plan_partitions(visit: Visit, admin: AdminClient, form: Form) -> ChangePlan:
    topic, total = visit.state.topic(form.get("topic", "")), _whole(form, "partitions")
    admin.create_partitions({topic.name: NewPartitions(total)}, validate_only=True)
    effects = [
        f"Topic {topic.name} gets {plural(total - len(topic.partitions), 'more partition')}: it then has {total:,}.",
        "Keys are sent to other partitions than before from then on. Partitions cannot be removed.",
    ]
    return ChangePlan(effects, address(visit.name, "topics", topic.name), is_final=True, topic_ids=(topic.topic_id,))


def _add_partitions(visit: Visit, admin: AdminClient, form: Form) -> str:
    admin.create_partitions({form["topic"]: NewPartitions(_whole(form, "partitions"))})
    return f"Topic {shown(form['topic'])} has {form['partitions']} partitions."


# -- configs


def _resource(visit: Visit, form: Form) -> tuple[str, TypedConfigs, ConfigResource]:
    """Return what a config is of, its configs, and the change; an empty value resets it."""
    topic, name, value = form.get("topic", ""), form.get("config", "").strip(), form.get("value", "").strip()
    configs: TypedConfigs = ClusterConfig(visit.state.configs)
    if topic:
        configs = TopicConfig.resolve(visit.state.topic(topic).configs, visit.state.configs)
    changed: dict[str, object] | list[str] = {name: value} if value else [name]
    resource = ConfigResource("TOPIC", topic, changed) if topic else ConfigResource("BROKER", "", changed)
    return f"topic {topic}" if topic else "the cluster", configs, resource


def _plan_config(visit: Visit, admin: AdminClient, form: Form) -> ChangePlan:
    where, configs, resource = _resource(visit, form)
    before = configs.explain(form.get("config", "").strip())
    _alter(admin, form, resource, validate_only=True)
    after = f"set to {shown(form['value'].strip(), 200)}" if form.get("value", "").strip() else "reset to its default"
    definition = configs.definitions[before.name]
    effects = [
        f"{before.name} of {where} is {after}. Now it is {shown('not set' if before.value is None else before.value)}.",
        definition.description,
    ]
    topic = form.get("topic", "")
    if not topic:
        return ChangePlan(effects, address(visit.name, "configs"))
    topic_ids = (visit.state.topic(topic).topic_id,)
    return ChangePlan(effects, address(visit.name, "topics", topic, "configs"), topic_ids=topic_ids)


def _alter_config(visit: Visit, admin: AdminClient, form: Form) -> str:
    where, _, resource = _resource(visit, form)
    _alter(admin, form, resource, validate_only=False)
    return f"{shown(form['config'])} of {where} was changed."


def _alter(admin: AdminClient, form: Form, resource: ConfigResource, validate_only: bool) -> None:
    if form.get("value", "").strip():
        admin.alter_configs([resource], validate_only=validate_only, raise_errors=True)
    else:
        admin.reset_configs([resource], validate_only=validate_only)


# -- offsets and records


def _specs(visit: Visit, form: Form) -> OffsetSpecs:
    """Return where each partition's offset is to be moved."""
    topic, to, at = visit.state.topic(form.get("topic", "")), form.get("to", ""), form.get("at", "").strip()
    if to not in _POSITIONS:
        raise _invalid("to", f"choose from {', '.join(_POSITIONS)}")
    numbers = range(len(topic.partitions))
    if form.get("partition", "").strip():
        numbers = range(_whole(form, "partition"), _whole(form, "partition") + 1)
    if to == "time":
        if not at:
            raise _invalid("at", "give a time, such as 2026-11-01T09:30:00Z or 90m")
        return {
            TopicPartition(topic.name, each): OffsetTimestamp(parse_time("at", at, visit.now_ms)) for each in numbers
        }
    if to == "offset":
        return {TopicPartition(topic.name, each): _whole(form, "at") for each in numbers}
    spec = OffsetSpec.EARLIEST if to == "earliest" else OffsetSpec.LATEST
    return {TopicPartition(topic.name, each): spec for each in numbers}


def _check_group(admin: AdminClient, visit: Visit, group: str) -> None:
    known = visit.state.groups.get(group)
    if known is None:
        raise GroupIdNotFoundError(f"group {group!r} does not exist", group=group)
    members = admin.live_groups({group: known})[group].members
    if members:
        raise NonEmptyGroupError(
            f"group {group!r} has {plural(len(members), 'member')}: stop them first, since they would overwrite the "
            "offsets",
            group=group,
        )


def _plan_reset(visit: Visit, admin: AdminClient, form: Form) -> ChangePlan:
    group = form.get("group", "")
    _check_group(admin, visit, group)
    planned = admin.plan_group_offsets(group, _specs(visit, form))
    before = visit.state.committed_offsets(group)
    effects = []
    for partition, target in sorted(planned.items()):
        known = before.get(partition)
        if known is None:
            effects.append(f"{partition}: from no offset to {target.offset:,}.")
            continue
        moved = target.offset - known.offset
        what = f"{abs(moved):,} offsets are {'skipped' if moved > 0 else 'read again'}" if moved else "no change"
        effects.append(f"{partition}: from {known.offset:,} to {target.offset:,}: {what}.")
    topics = sorted({partition.topic for partition in planned if partition.topic in visit.state.topics})
    topic_ids = tuple(visit.state.topics[name].topic_id for name in topics)
    return ChangePlan(effects, address(visit.name, "group", name=group), topic_ids=topic_ids)


def _reset_offsets(visit: Visit, admin: AdminClient, form: Form) -> str:
    group = form.get("group", "")
    _check_group(admin, visit, group)
    planned = admin.plan_group_offsets(group, _specs(visit, form))
    before = admin.list_group_offsets({group: list(planned)})[group]
    positions = {partition: before[partition]._replace(offset=target.offset) for partition, target in planned.items()}
    admin.alter_group_offsets(group, positions, raise_errors=True, planned=planned)
    return f"The offsets of group {shown(group, 100)} in {plural(len(positions), 'partition')} were set."


def _log(visit: Visit, form: Form) -> tuple[TopicPartition, PartitionState]:
    partition = TopicPartition(form.get("topic", ""), _whole(form, "partition"))
    return partition, visit.state.partition(*partition)


def _plan_records(visit: Visit, admin: AdminClient, form: Form) -> ChangePlan:
    (partition, log), before = _log(visit, form), _whole(form, "before")
    if not log.log_start_offset <= before <= log.high_watermark:
        raise _invalid(
            "before", f"{partition} has offsets from {log.log_start_offset:,}, and ends at {log.high_watermark:,}"
        )
    effects = [
        f"The records of {partition} before offset {before:,} are deleted: {before - log.log_start_offset:,} offsets.",
        "The next retention frees their space. This cannot be undone.",
    ]
    topic_ids = (visit.state.topic(partition.topic).topic_id,)
    return ChangePlan(effects, address(visit.name, "topics", partition.topic), is_final=True, topic_ids=topic_ids)


def _delete_records(visit: Visit, admin: AdminClient, form: Form) -> str:
    partition, _ = _log(visit, form)
    low = admin.delete_records({partition: _whole(form, "before")})[partition]["low_watermark"]
    return f"{partition} starts at offset {low:,}."


def _value(form: Form) -> bytes | None:
    """Return the value of a record; browsers send the ends of its lines as two characters."""
    return None if form.get("null") == "yes" else form.get("value", "").replace("\r\n", "\n").encode()


def _plan_record(visit: Visit, admin: AdminClient, form: Form) -> ChangePlan:
    topic = visit.state.topic(form.get("topic", ""))
    partition = form.get("partition", "").strip()
    where = f"partition {_whole(form, 'partition')}" if partition else "the partition that its key chooses"
    if partition:
        visit.state.partition(topic.name, _whole(form, "partition"))
    headers = _pairs(form.get("headers", ""), "headers")
    value = _value(form)
    content = "a null value (a tombstone)" if value is None else plural(len(value), "byte")
    key = f"key {shown(form['key'], 100)}" if form.get("key") else "no key"
    effects = [
        f"One record is appended to {topic.name}, {where}: {key}, {content}, {plural(len(headers), 'header')}.",
        "Consumers of the topic will read it. It cannot be taken back.",
    ]
    if value:
        effects.append(f"SHA-256 of its value: {hashlib.sha256(value).hexdigest()}")
    href = address(visit.name, "topics", topic.name, "records")
    return ChangePlan(effects, href, is_final=True, topic_ids=(topic.topic_id,))


def _produce(visit: Visit, admin: AdminClient, form: Form) -> str:
    with Producer(cluster=visit.cluster.coordinator, acks="all") as producer:
        sent = producer.send(
            visit.state.topic(form["topic"]).name,
            value=_value(form),
            key=form["key"].encode() if form.get("key") else None,
            headers=[(name, value.encode()) for name, value in _pairs(form.get("headers", ""), "headers")],
            partition=_whole(form, "partition") if form.get("partition", "").strip() else None,
        ).get()
    return f"The record has offset {sent.offset:,} of partition {sent.partition}."


# -- maintenance


def _steps(form: Form) -> list[str]:
    """Return the steps that a form names, none for all."""
    names = form.get("steps", "").replace(",", " ").split()
    for name in names:
        if name not in PASS_STEPS:
            raise _invalid("steps", f"{name[:40]!r} is none of {', '.join(PASS_STEPS)}")
    return names


def _plan_pass(visit: Visit, admin: AdminClient, form: Form) -> ChangePlan:
    names = _steps(form) or PASS_STEPS
    visit.site.passes.check_idle(visit.name)
    effects = [
        f"One pass of maintenance runs in the background: {', '.join(name for name in PASS_STEPS if name in names)}.",
        "It merges small files, removes what the configs of topics let expire, and deletes files that left the log, as "
        "`sparklog maintain --once` does.",
    ]
    due = list_due(visit.cluster.coordinator, visit.state, visit.now_ms)
    return ChangePlan(effects, address(visit.name, "maintenance"), True, tuple(due_sentences(due, names)))


def _start_pass(visit: Visit, admin: AdminClient, form: Form) -> str:
    visit.site.passes.start(visit.cluster, _steps(form))
    return "A pass of maintenance has begun; the page of maintenance shows how far it is."


_TOPIC, _GROUP = Field("topic", "Topic", "hidden"), Field("group", "Group", "hidden")
_PARTITION = Field("partition", "Partition", hint="all, if empty")

CHANGES: Mapping[str, PlannedChange] = {
    "create-topic": PlannedChange(
        "Create a topic",
        "Create topic",
        (
            Field("topic", "Name"),
            Field("partitions", "Partitions", hint="1"),
            Field("replicas", "Replicas", hint="1"),
            Field("configs", "Configs", "area", "retention.ms=86400000"),
        ),
        _plan_topic,
        _create_topic,
    ),
    "delete-topic": PlannedChange(
        "Delete the topic",
        "Delete topic",
        (_TOPIC, Field("name", "Type its name to confirm")),
        _plan_deletion,
        _delete_topic,
    ),
    "add-partitions": PlannedChange(
        "Add partitions",
        "Add partitions",
        (_TOPIC, Field("partitions", "Partitions afterwards")),
        _plan_partitions,
        _add_partitions,
    ),
    "change-config": PlannedChange(
        "Change a config",
        "Change config",
        (_TOPIC, Field("config", "Config"), Field("value", "Value", hint="empty: its default")),
        _plan_config,
        _alter_config,
    ),
    "reset-offsets": PlannedChange(
        "Reset the offsets of the group",
        "Set offsets",
        (
            _GROUP,
            Field("topic", "Topic"),
            _PARTITION,
            Field("to", "To", choices=_POSITIONS),
            Field("at", "Time or offset", hint="90m, 2026-11-01T09:30:00Z, 1200"),
        ),
        _plan_reset,
        _reset_offsets,
    ),
    "delete-records": PlannedChange(
        "Delete records",
        "Delete records",
        (_TOPIC, Field("partition", "Partition"), Field("before", "Before offset")),
        _plan_records,
        _delete_records,
    ),
    "produce": PlannedChange(
        "Produce a record",
        "Append record",
        (
            _TOPIC,
            Field("partition", "Partition", hint="by key, if empty"),
            Field("key", "Key", hint="none, if empty"),
            Field("value", "Value", "area"),
            Field("null", "Value is null", choices=("no", "yes")),
            Field("headers", "Headers", "area", "name=value"),
        ),
        _plan_record,
        _produce,
    ),
    "maintain": PlannedChange(
        "Run maintenance once",
        "Start the pass",
        (Field("steps", "Steps", hint="all, if empty"),),
        _plan_pass,
        _start_pass,
    ),
}
"""The changes by their part of the address."""
