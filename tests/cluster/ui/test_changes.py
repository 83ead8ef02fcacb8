"""Changes from the web page: nothing without --allow-changes, a session's form, and a confirmation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import Any
from urllib.parse import urlencode

import pytest

import sparklog
import sparklog.testing
from sparklog.coordinator import Coordinator
from sparklog.coordinator.topic_deletion import delete_topic
from sparklog.protocol.commits import JoinGroup
from sparklog.testing.clusters import Cluster
from sparklog.ui.changes import CHANGES
from tests.shown_cluster import SCRIPT, commit
from tests.web import Answer, Web, serving


class Browser:
    """Fills in forms as a browser does, with its cookie."""

    def __init__(self, web: Web) -> None:
        self._web = web
        self.cookie = {"Cookie": web.get("/log").cookies[0].partition(";")[0]}

    def post(self, change: str, **fields: str) -> Answer:
        form = self._web.get(f"/log/change/{change}", self.cookie)
        assert form.status == 200, form.text
        return self._send(change, {**fields, "csrf": _hidden(form.text, "csrf")})

    def confirm(self, change: str, answer: Answer, **fields: str) -> Answer:
        found = {name: _hidden(answer.text, name) for name in ("csrf", "confirmed")}
        return self._send(change, {**_texts(answer.text), **found, **fields})

    def change(self, change: str, **fields: str) -> Answer:
        """Fill in the form and confirm what it says."""
        plan = self.post(change, **fields)
        assert plan.status == 200, plan.text
        return self.confirm(change, plan)

    def _send(self, change: str, fields: dict[str, str]) -> Answer:
        return self._web.post(f"/log/change/{change}", urlencode(fields).encode(), self.cookie)


def _hidden(text: str, name: str) -> str:
    found = re.search(rf'<input type="hidden" name="{name}" value="([^"]*)">', text)
    assert found is not None, text
    return unescape(found[1])


def _texts(text: str) -> dict[str, str]:
    found = re.findall(r'<textarea hidden name="([^"]*)">\n(.*?)</textarea>', text, re.DOTALL)
    return {name: unescape(value) for name, value in found}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with sparklog.testing.cluster(topics={"orders": 2}) as cluster:
        with sparklog.Producer(cluster=cluster.coordinator) as producer:
            for number in range(10):
                producer.send("orders", b"%d" % number, partition=number % 2)
        yield cluster


@pytest.fixture
def browser(cluster: Cluster) -> Iterator[Browser]:
    with serving(cluster.coordinator, allow_changes=True) as web:
        yield Browser(web)


def effects(answer: Answer) -> list[str]:
    return [unescape(each) for each in re.findall(r"<li><bdi>(.*?)</bdi></li>", answer.text)]


def test_without_allow_changes_there_are_no_forms(web: Web) -> None:
    for name in CHANGES:
        assert web.get(f"/log/change/{name}").status == 404
        assert web.post(f"/log/change/{name}", b"topic=x").status in (404, 405)
    assert "/change/" not in web.get("/log/topics/orders").text


def test_a_topic_is_created_changed_and_deleted(browser: Browser, cluster: Cluster) -> None:
    done = browser.change("create-topic", topic="new", partitions="3", replicas="1", configs="retention.ms=1000")
    assert "Topic new was created." in done.text
    assert "Topic new has 5 partitions." in browser.change("add-partitions", topic="new", partitions="5").text
    browser.change("change-config", topic="new", config="retention.ms", value="2000")
    state = cluster.coordinator.refresh().topic("new")
    assert (len(state.partitions), state.configs) == (5, {"retention.ms": "2000"})
    browser.change("change-config", topic="new", config="retention.ms", value="")
    assert cluster.coordinator.refresh().topic("new").configs == {}
    assert "Topic new was deleted." in browser.change("delete-topic", topic="new", name="new").text
    assert sorted(cluster.coordinator.refresh().topics) == ["orders"]


def test_configs_of_the_cluster_are_changed(browser: Browser, cluster: Cluster) -> None:
    browser.change("change-config", topic="", config="num.partitions", value="4")
    assert cluster.coordinator.refresh().configs == {"num.partitions": "4"}


def test_nothing_happens_before_the_confirmation_which_says_what_will(browser: Browser, cluster: Cluster) -> None:
    version = cluster.coordinator.refresh().version
    plan = browser.post("delete-topic", topic="orders", name="orders")
    assert effects(plan)[0].startswith("Topic orders is deleted: 2 partitions, 10 offsets")
    browser.post("create-topic", topic="new")
    browser.post("produce", topic="orders", value="x")
    assert cluster.coordinator.refresh().version == version


def test_what_has_changed_since_it_was_shown_is_shown_again(browser: Browser, cluster: Cluster) -> None:
    plan = browser.post("delete-topic", topic="orders", name="orders")
    with sparklog.Producer(cluster=cluster.coordinator) as producer:
        producer.send("orders", b"one more")
    again = browser.confirm("delete-topic", plan)
    assert "has changed since you looked" in again.text
    assert "11 offsets" in effects(again)[0]
    assert "orders" in cluster.coordinator.refresh().topics
    assert "was deleted" in browser.confirm("delete-topic", again).text


def test_a_confirmation_counts_for_what_was_confirmed_alone(browser: Browser, cluster: Cluster) -> None:
    plan = browser.post("produce", topic="orders", value="harmless")
    answer = browser.confirm("produce", plan, value="another")
    assert "has changed since you looked" in answer.text
    assert len(cluster.records("orders")) == 10


def test_offsets_are_reset_as_the_plan_says(browser: Browser, cluster: Cluster) -> None:
    with sparklog.AdminClient(cluster=cluster.coordinator) as admin:
        place = sparklog.TopicPartition("orders", 0)
        admin.alter_group_offsets("billing", {place: 5})
        plan = browser.post("reset-offsets", group="billing", topic="orders", partition="", to="offset", at="2")
        assert effects(plan) == ["orders-0: from 5 to 2: 3 offsets are read again.", "orders-1: from no offset to 2."]
        browser.confirm("reset-offsets", plan)
        assert admin.list_group_offsets("billing")["billing"][place].offset == 2


def test_offsets_of_a_group_with_members_are_not_reset(browser: Browser, cluster: Cluster) -> None:
    member = JoinGroup(group="busy", member="m", topics=["orders"], assignors=["range"], session_timeout_ms=60_000)
    commit(cluster.coordinator, member)
    answer = browser.post("reset-offsets", group="busy", topic="orders", to="earliest")
    assert answer.status == 400
    assert "has 1 member: stop them first" in unescape(answer.text)


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ("delete-topic", {"topic": "new", "name": "new"}),
        ("add-partitions", {"topic": "new", "partitions": "2"}),
        ("delete-records", {"topic": "new", "partition": "0", "before": "0"}),
        ("change-config", {"topic": "new", "config": "retention.ms", "value": "1"}),
        ("produce", {"topic": "new", "partition": "0", "key": "k", "value": "v", "null": "no", "headers": ""}),
    ],
)
def test_a_topic_that_was_created_again_is_not_what_was_confirmed(
    browser: Browser, cluster: Cluster, change: str, fields: dict[str, str]
) -> None:
    cluster.coordinator.create_topic("new")
    plan = browser.post(change, **fields)
    delete_topic(cluster.coordinator, "new")
    cluster.coordinator.create_topic("new")
    version = cluster.coordinator.refresh().version
    again = browser.confirm(change, plan)
    assert effects(again) == effects(plan)  # to be confirmed again
    assert cluster.coordinator.refresh().version == version
    browser.confirm(change, again)


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ("delete-topic", {"topic": "new", "name": "new"}),
        ("add-partitions", {"topic": "new", "partitions": "2"}),
        ("delete-records", {"topic": "new", "partition": "0", "before": "0"}),
        ("change-config", {"topic": "new", "config": "retention.ms", "value": "1"}),
    ],
)
def test_a_topic_that_is_created_again_as_the_change_is_made_is_left_alone(
    browser: Browser, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, change: str, fields: dict[str, str]
) -> None:
    cluster.coordinator.create_topic("new")
    plan = browser.post(change, **fields)
    submit, versions = Coordinator.submit, list[int]()

    def create_again(coordinator: Coordinator, *arguments: Any) -> Any:
        if not versions:
            versions.append(0)
            delete_topic(coordinator, "new")
            coordinator.create_topic("new")
            versions.append(coordinator.refresh().version)
        return submit(coordinator, *arguments)

    monkeypatch.setattr(Coordinator, "submit", create_again)
    assert "was deleted since this was confirmed" in browser.confirm(change, plan).text
    assert cluster.coordinator.refresh().version == versions[1]


def test_records_are_deleted_and_produced(browser: Browser, cluster: Cluster) -> None:
    assert (
        "orders-1 starts at offset 3."
        in browser.change("delete-records", topic="orders", partition="1", before="3").text
    )
    value = f"{SCRIPT}\r\n\u202e line"
    browser.change("produce", topic="orders", partition="0", key="k", value=value, null="no", headers="a=b")
    browser.change("produce", topic="orders", partition="0", key="k", value="", null="yes")
    *_, record, tombstone = cluster.records("orders", 0)
    assert (record.key, record.value, record.headers) == (b"k", value.replace("\r\n", "\n").encode(), [("a", b"b")])
    assert (tombstone.key, tombstone.value) == (b"k", None)


@pytest.mark.parametrize(
    ("change", "fields", "message"),
    [
        ("create-topic", {"topic": "orders"}, "already exists"),
        ("create-topic", {"topic": f"{SCRIPT}"}, "invalid"),
        ("create-topic", {"topic": "new", "configs": "nonsense"}, "is not of the form name=value"),
        ("create-topic", {"topic": "new", "configs": "retention.msec=1"}, "retention.msec"),
        ("delete-topic", {"topic": "orders", "name": "order"}, "type the name of the topic"),
        ("delete-topic", {"topic": "missing", "name": "missing"}, "does not exist"),
        ("add-partitions", {"topic": "orders", "partitions": "1"}, "partitions"),
        ("change-config", {"topic": "orders", "config": "retention.ms", "value": "soon"}, "retention.ms"),
        ("change-config", {"topic": "orders", "config": "no.such", "value": "1"}, "no.such"),
        ("reset-offsets", {"group": "missing", "topic": "orders", "to": "earliest"}, "does not exist"),
        ("delete-records", {"topic": "orders", "partition": "0", "before": "99"}, "ends at 5"),
        ("delete-records", {"topic": "orders", "partition": "x", "before": "1"}, "give a whole number"),
        ("produce", {"topic": "orders", "partition": "7", "value": "x"}, "has partitions 0 to 1"),
        ("produce", {"topic": "orders", "headers": "x", "value": "x"}, "headers"),
    ],
)
def test_an_invalid_form_is_shown_again_with_the_reason(
    browser: Browser, cluster: Cluster, change: str, fields: dict[str, str], message: str
) -> None:
    version = cluster.coordinator.refresh().version
    answer = browser.post(change, **fields)
    assert answer.status == 400
    assert message in unescape(answer.text)
    assert SCRIPT not in answer.text
    assert cluster.coordinator.refresh().version == version


def test_a_form_without_the_token_of_its_session_is_refused(cluster: Cluster) -> None:
    with serving(cluster.coordinator, allow_changes=True) as web:
        first, second = Browser(web), web.get("/log/change/create-topic")
        form = urlencode({"topic": "new", "csrf": _hidden(second.text, "csrf")}).encode()
        for headers in ({}, {"Cookie": "sparklog_session=1.2.3"}, first.cookie):
            assert web.post("/log/change/create-topic", form, headers).status == 403
        assert web.post("/log/change/create-topic", b"topic=new", first.cookie).status == 403
        own = {"Cookie": second.cookies[0].partition(";")[0]}
        assert web.post("/log/change/create-topic", form, {**own, "Origin": "https://evil.example"}).status == 403
        assert web.post("/log/change/create-topic", form, own).status == 200
        assert web.get("/log/change/nothing").status == 400
