"""Settings without effect are named, with the reason (in a cluster: tests/cluster/coordinator)."""

from __future__ import annotations

from sparklog.config.effects import without_effect

SAID = "stored, has no effect here: flush.messages=1 (committed records are already durable)"


def test_settings_without_effect_are_named_with_the_reason() -> None:
    assert without_effect("orders", {"flush.messages": "1", "retention.ms": "1000"}) == [SAID]
    assert without_effect("", {"log.cleaner.threads": "4"}) == [
        "stored, has no effect here: log.cleaner.threads=4 "
        "(`sparklog maintain --workers` sets how many tasks run in parallel)"
    ]


def test_a_setting_at_its_default_is_not_warned_about() -> None:
    assert without_effect("orders", {"preallocate": " FALSE ", "segment.index.bytes": "10485760"}) == []
    assert without_effect("", {"log.index.size.max.bytes": "10485760"}) == []
