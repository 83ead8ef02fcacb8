"""Files of rules: what they may say, and what the error says that names a mistake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparklog.errors import InvalidConfigurationError
from sparklog.monitoring.alerts.channels_of_file import Command, Mail, Webhook
from sparklog.monitoring.alerts.quantities import Unit, parse, show
from sparklog.monitoring.alerts.rule_file import read_rule_file
from sparklog.monitoring.alerts.rules import KINDS, Patterns, RuleBook, read_rules

CONF = Path(__file__).resolve().parents[3] / "conf" / "alerts.toml"
LAG = {"name": "behind", "kind": "lag", "above": 10}


def book(*rules: dict[str, Any], environ: dict[str, str] | None = None, **content: Any) -> RuleBook:
    return read_rules({"rule": list(rules) or [LAG], **content}, environ or {})


def test_the_rules_of_conf_are_valid_also_those_that_are_commented_out(tmp_path: Path) -> None:
    assert len(read_rule_file(str(CONF)).rules) > 5
    everything = tmp_path / "all.toml"
    lines = [line.removeprefix("# ") for line in CONF.read_text().splitlines()]
    first = lines.index("[channel.chat]")
    everything.write_text("\n".join(line for line in lines[first:] if "=" in line or line.startswith("[")))
    whole = read_rule_file(str(everything), {"CHAT_TOKEN": "Bearer a", "MAIL_PASSWORD": "b"})
    assert sorted(whole.channels) == ["chat", "mail", "pager"]
    assert {rule.kind for rule in whole.rules} >= {"no_commit", "stopped", "topic_bytes"}
    assert all(rule.notify == ("chat", "pager", "mail") for rule in whole.rules)


def test_a_rule_has_its_durations_in_seconds_and_clears_at_its_threshold() -> None:
    (rule,) = book({**LAG, "for": "5m", "keep_firing_for": "1h"}).rules
    assert (rule.hold, rule.keep, rule.above, rule.clear, rule.severity) == (300, 3600, 10, 10, "warning")
    (late,) = book({"name": "late", "kind": "lag_seconds", "above": "2h", "clear": "90m"}).rules
    assert (late.above, late.clear) == (7200, 5400)


def test_every_kind_can_be_used_with_the_keys_that_it_takes() -> None:
    thresholds: dict[Unit, object] = {Unit.COUNT: 5, Unit.BYTES: "5GiB", Unit.SECONDS: "5m"}
    extra = {"over": "1h", "late": "2h", "below": 2}
    for word, kind in KINDS.items():
        patterns = {what: "roll" if what == "step" else "a*" for what in kind.subject}
        keys = {key: extra[key] for key in kind.keys}
        (rule,) = book({"name": word, "kind": word, "above": thresholds[kind.unit], **patterns, **keys}).rules
        assert rule.wants(**{what: "roll" if what == "step" else "abc" for what in kind.subject})
        assert not kind.subject or not rule.wants(**dict.fromkeys(kind.subject, "b"))


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"kind": "lag", "above": 1}, "rule 1: name is missing"),
        ({**LAG, "name": "two\nlines"}, "invalid name"),
        ({"name": "a", "above": 1}, "rule 'a': kind is missing: one of lag, "),
        ({**LAG, "kind": "lagg"}, "invalid kind 'lagg'.*did you mean lag"),
        ({**LAG, "abov": 1}, "rule 'behind': unknown key 'abov'; did you mean above"),
        ({**LAG, "broker": "1"}, "unknown key 'broker'.*a rule of kind lag takes"),
        ({"name": "a", "kind": "lag"}, "above is missing: the records that a group is behind"),
        ({**LAG, "above": "5m"}, "invalid above '5m': must be a number"),
        ({**LAG, "above": -1}, "invalid above -1"),
        ({**LAG, "above": float("nan")}, "invalid above nan"),
        ({**LAG, "above": True}, "invalid above True"),
        ({**LAG, "for": 5}, "invalid for 5: must be a duration such as 30s"),
        ({**LAG, "for": "5 minutes"}, "invalid for '5 minutes'"),
        ({**LAG, "for": "99999999d"}, "must be at most ten years"),
        ({**LAG, "clear": 11}, "invalid clear 11: must not be more than above"),
        ({**LAG, "severity": "warn"}, "invalid severity 'warn'"),
        ({**LAG, "description": 5}, "invalid description 5"),
        ({**LAG, "group": []}, "invalid group"),
        ({**LAG, "group": ["a", "!"]}, "invalid group"),
        ({**LAG, "notify": ["opps"]}, "invalid notify 'opps': there is no such channel; did you mean ops.; the file"),
        ({"name": "a", "kind": "isr", "below": 0}, "invalid below 0"),
        ({"name": "a", "kind": "maintenance", "step": "rol"}, "invalid step 'rol': matches none of roll"),
        ({"name": "a", "kind": "lag_rising", "over": "0s"}, "invalid over '0s'"),
    ],
)
def test_a_mistake_in_a_rule_is_named(rule: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=said):
        book(
            rule,
            channel={"ops": {"type": "command", "command": ["true"]}, "oops": {"type": "command", "command": ["a"]}},
        )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"rules": []}, "the file: unknown key 'rules'; did you mean rule"),
        ({"rule": []}, "the file has 0 rules"),
        ({"rule": {"name": "a"}}, r"write each rule as \[\[rule\]\]"),
        ({"rule": [LAG, LAG]}, "two rules are called 'behind'"),
        ({"rule": [LAG], "interval": "10ms"}, "invalid interval '10ms': must be at least 1s"),
        ({"rule": [LAG], "channel": []}, r"write it as \[channel.NAME\]"),
    ],
)
def test_a_mistake_in_the_file_is_named(content: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=said):
        read_rules(content, {})


MAIL = {"type": "email", "to": ["a@example.org"], "from": "b@example.org", "host": "mail"}
HOOK = {"type": "webhook", "url": "https://example.org/x"}


@pytest.mark.parametrize(
    ("channel", "said"),
    [
        (5, "write it as"),
        ({"type": "web"}, "invalid type 'web': must be one of webhook"),
        ({**HOOK, "heeders": {}}, "channel 'c': unknown key 'heeders'; did you mean headers"),
        ({**HOOK, "url": "file:///etc/passwd"}, "must be an http or https address"),
        ({**HOOK, "url": "https://user:secret@example.org"}, "must have no user and password"),
        ({**HOOK, "url": "http://[::1"}, "must be an http or https address"),
        ({**HOOK, "headers": {"A": "b\r\nC: d"}}, "invalid headers"),
        ({**HOOK, "headers": {"A b": "c"}}, "invalid headers.*'A b' must be letters"),
        ({**HOOK, "headers": {"A": "\u20ac"}}, "invalid headers.*its value ASCII"),
        ({**HOOK, "url": "https://example.org/caf\u00e9"}, "invalid url.*must be ASCII"),
        ({**HOOK, "headers_from": {"A": "TOKEN"}}, "environment variable TOKEN is not set"),
        ({**HOOK, "timeout": "1h"}, "invalid timeout '1h'"),
        ({"type": "command", "command": "page --now"}, "invalid command 'page --now': must be a list"),
        ({"type": "command", "command": ["a\0b"]}, "NUL"),
        ({**MAIL, "to": ["nobody"]}, "invalid to"),
        ({**MAIL, "from": "a@b\nBcc: c@d"}, "invalid from"),
        ({**MAIL, "port": 0}, "invalid port 0"),
        ({**MAIL, "security": "ssl"}, "invalid security 'ssl'"),
        ({**MAIL, "user": "u"}, "user and password_from belong together"),
        ({**MAIL, "user": "u", "password_from": "P", "security": "none"}, "sent over starttls or tls alone"),
    ],
)
def test_a_mistake_in_a_channel_is_named(channel: object, said: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=said):
        book(channel={"c": channel})


def test_secrets_of_channels_come_from_the_environment() -> None:
    hook = {**HOOK, "headers": {"X-Team": "a"}, "headers_from": {"Authorization": "TOKEN"}, "timeout": "3s"}
    mail = {**MAIL, "user": "u", "password_from": "PASSWORD"}
    read = book(
        channel={"hook": hook, "mail": mail, "run": {"type": "command", "command": ["a", "b"]}},
        environ={"TOKEN": "Bearer t", "PASSWORD": "p"},
    ).channels
    assert read["hook"] == Webhook("https://example.org/x", {"X-Team": "a", "Authorization": "Bearer t"}, 3.0)
    assert read["mail"] == Mail(("a@example.org",), "b@example.org", "mail", 587, "starttls", "u", "p")
    assert read["run"] == Command(("a", "b"))


def test_patterns_choose_and_leave_out_names() -> None:
    assert Patterns(("pay-*", "!pay-test")).match("pay-card")
    assert not Patterns(("pay-*", "!pay-test")).match("pay-test")
    assert not Patterns(("pay-*",)).match("PAY-card")
    assert Patterns(("!a",)).match("b")
    assert Patterns().match("anything")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"rule = [", "invalid rules .*rules.toml"),
        (b"\xff", "invalid rules"),
        (b"x = " + b"[" * 20_000, "nested too deeply|invalid rules"),
        (b"#" * (1 << 20) + b"##", "it has more than 1,048,576 bytes"),
    ],
)
def test_a_file_that_is_no_toml_is_refused(tmp_path: Path, text: bytes, said: str) -> None:
    path = tmp_path / "rules.toml"
    path.write_bytes(text)
    with pytest.raises(InvalidConfigurationError, match=said):
        read_rule_file(str(path))


def test_a_file_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigurationError, match="cannot be read: No such file"):
        read_rule_file(str(tmp_path / "no.toml"))


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("500ms", Unit.SECONDS, 0.5),
        ("1.5h", Unit.SECONDS, 5400),
        ("2w", Unit.SECONDS, 1_209_600),
        ("10 GiB", Unit.BYTES, 10 * 2**30),
        ("1.5kB", Unit.BYTES, 1500),
        (7, Unit.BYTES, 7),
        (2.5, Unit.COUNT, 2.5),
    ],
)
def test_quantities_have_units(text: object, unit: Unit, value: float) -> None:
    assert parse(text, unit) == value


@pytest.mark.parametrize("text", ["5M", "5", "-5m", "m", "", "٥m", "1e3s", "5m5s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        parse(text, Unit.SECONDS)


def test_quantities_are_shown_for_people() -> None:
    shown = [show(value, Unit.SECONDS) for value in (0.5, 60, 90, 120, 5400, 7200, 172_800)]
    assert shown == ["0.5 s", "1 min", "90 s", "2 min", "90 min", "2 h", "2 d"]
    assert [show(1536, Unit.BYTES), show(12, Unit.BYTES), show(12_000, Unit.COUNT)] == ["1.5 KiB", "12 bytes", "12,000"]
