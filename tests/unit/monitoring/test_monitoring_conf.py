"""conf/grafana-dashboard.json and conf/prometheus-alerts.yml: every metric and label that they name is exported."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from sparklog.cli.commands.monitoring.metrics import DEFAULT_LISTEN
from sparklog.monitoring.exporter.families import FAMILIES, HISTOGRAM

CONF = Path(__file__).resolve().parents[3] / "conf"
ALERTS = CONF / "prometheus-alerts.yml"
DOCUMENT = CONF.parent / "docs" / "monitoring-metrics.md"
DASHBOARD: dict[str, Any] = json.loads((CONF / "grafana-dashboard.json").read_text())
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]
]

OF_THE_SCRAPE = {"job", "instance"}
"""Labels that Prometheus adds."""

_METRIC = re.compile(r"\b(?:kafka|sparklog)_[a-z_]+\b")
_LABELS = re.compile(r"\{([^}]*)\}|\b(?:by|without|on|ignoring) ?\(([^)]*)\)")
_SHOWN = re.compile(r"\{\{ *(?:\$labels\.)?([a-z_]+) *\}\}|\$labels\.([a-z_]+)")


def metrics_in(expression: str) -> set[str]:
    """The families that an expression names."""
    return {_family(name) for name in _METRIC.findall(expression)}


def _family(name: str) -> str:
    base = re.sub(r"_(bucket|sum|count)$", "", name)
    return base if base in FAMILIES and FAMILIES[base].kind == HISTOGRAM else name


def labels_in(expression: str) -> set[str]:
    """The labels that an expression selects or groups by."""
    names: set[str] = set()
    for selector, grouping in _LABELS.findall(expression):
        names |= {part.partition("=")[0].strip(" ~!") for part in re.sub(r'"[^"]*"', "", selector).split(",")}
        names |= {part.strip() for part in grouping.split(",")}
    return names - {""}


def test_the_configuration_of_the_opentelemetry_collector_scrapes_the_default_address_and_names_what_it_defines() -> (
    None
):
    (text,) = re.findall(r"```yaml\n(.*?)```", DOCUMENT.read_text(), re.S)
    config = yaml.safe_load(text)
    (scraped,) = config["receivers"]["prometheus"]["config"]["scrape_configs"]
    assert scraped["static_configs"] == [{"targets": [DEFAULT_LISTEN]}]
    for part, names in config["service"]["pipelines"]["metrics"].items():
        assert set(names) == set(config[part])


def known_labels(expression: str) -> set[str]:
    of_metrics = {label for name in metrics_in(expression) for label in FAMILIES[name].labels}
    return of_metrics | OF_THE_SCRAPE | {"le"}


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def expressions() -> list[tuple[str, str]]:
    """Every expression of the dashboard, with the text that shows its labels."""
    of_panels = [(target["expr"], target["legendFormat"]) for panel in panels() for target in panel["targets"]]
    variables = [
        variable["query"]["query"] for variable in DASHBOARD["templating"]["list"] if variable["type"] == "query"
    ]
    found = [re.fullmatch(r"label_values\((.*), ([a-z]+)\)", text) for text in variables]
    return of_panels + [(match[1], f"{{{{{match[2]}}}}}") for match in found if match is not None]


@pytest.mark.parametrize(
    ("expression", "shown"),
    [*expressions(), *((rule["expr"], " ".join(rule["annotations"].values())) for rule in RULES)],
)
def test_every_metric_and_label_that_is_used_is_exported(expression: str, shown: str) -> None:
    assert metrics_in(expression)
    assert metrics_in(expression) <= FAMILIES.keys()
    known = known_labels(expression)
    assert labels_in(expression) <= known
    assert {first or second for first, second in _SHOWN.findall(shown)} <= known
    assert expression.count("(") == expression.count(")")


def test_the_check_finds_unknown_labels() -> None:
    assert labels_in('sum by (a, b) (kafka_brokers{c=~"$d,e",f!="g"})') == {"a", "b", "c", "f"}
    assert metrics_in("rate(sparklog_append_delay_seconds_bucket[5m]) + kafka_brokerz") == {
        "sparklog_append_delay_seconds", "kafka_brokerz",
    }  # fmt: skip


def test_counters_are_rated_and_gauges_are_not_increased() -> None:
    for expression, _ in [*expressions(), *((rule["expr"], "") for rule in RULES)]:
        for function, name in re.findall(r"\b(rate|increase|delta|changes)\((\w+)", expression):
            is_counter = FAMILIES[_family(name)].kind != "gauge" or name.endswith("current_offset")
            assert is_counter == (function in ("rate", "increase")), expression


# -- alerts


def test_alert_rules_have_what_prometheus_and_a_reader_need() -> None:
    names = [rule["alert"] for rule in RULES]
    assert len(names) == len(set(names)) >= 15
    for rule in RULES:
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
        assert re.fullmatch(r"Sparklog[A-Za-z]+", rule["alert"])
        assert re.fullmatch(r"[0-9]+[smh]", rule.get("for", "1m"))
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"].keys() == {"summary", "description"}


# -- the dashboard


def test_the_dashboard_has_the_fields_that_grafana_needs() -> None:
    assert DASHBOARD["id"] is None  # so that Grafana creates it
    assert DASHBOARD["schemaVersion"] >= 36
    assert {"title", "uid", "panels", "templating", "time", "annotations", "version"} <= DASHBOARD.keys()
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    variables = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    assert variables == {"datasource", "job", "instance", "topic", "group"}
    for panel in panels():
        assert {"title", "description", "gridPos", "targets", "fieldConfig", "options"} <= panel.keys()
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert [target["refId"] for target in panel["targets"]] == list("ABCD")[: len(panel["targets"])]
    used = {name for text in re.findall(r"\$(\w+)", json.dumps(panels())) for name in [text]}
    assert used - {"__rate_interval"} <= variables | {"datasource"}


def test_panels_fill_the_width_and_do_not_overlap() -> None:
    taken: dict[tuple[int, int], int] = {}
    for panel in DASHBOARD["panels"]:
        grid = panel["gridPos"]
        assert grid["x"] + grid["w"] <= 24
        for x in range(grid["x"], grid["x"] + grid["w"]):
            for y in range(grid["y"], grid["y"] + grid["h"]):
                assert taken.setdefault((x, y), panel["id"]) == panel["id"]
    assert len(taken) == 24 * (max(y for _, y in taken) + 1)


def test_the_first_rows_need_no_more_than_kafka_exporter_has() -> None:
    rows = [number for number, panel in enumerate(DASHBOARD["panels"]) if panel["type"] == "row"]
    for panel in DASHBOARD["panels"][: rows[-1]]:
        for target in panel.get("targets", ()):
            assert all(name.startswith("kafka_") for name in metrics_in(target["expr"]))
    assert DASHBOARD["panels"][rows[-1]]["title"] == "sparklog"


def test_the_document_lists_every_metric_with_its_type_and_labels() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (gauge|counter|histogram) \| (.+?) \| (.+) \|$", DOCUMENT.read_text(), re.M)
    assert [(name, kind, labels, meaning) for name, kind, labels, meaning in sorted(rows)] == [
        (name, family.kind, ", ".join(f"`{label}`" for label in family.labels) or "-", family.help)
        for name, family in sorted(FAMILIES.items())
    ]
