"""What differs between two states of a machine."""

from __future__ import annotations

from pathlib import Path

from tests.machine.state import differences, read_state


def test_equal_states_have_no_differences() -> None:
    state = {"process": {"1": "init"}, "firewall": {}}
    assert differences(state, {"process": {"1": "init"}, "firewall": {}}) == []


def test_what_was_added_removed_and_changed_is_named() -> None:
    before = {"process": {"7": "sleep"}, "kernel setting": {"kernel/panic": "0"}}
    after = {"process": {"8": "java"}, "kernel setting": {"kernel/panic": "10"}}
    assert differences(before, after) == [
        "kernel setting kernel/panic: gone, '0'",
        "kernel setting kernel/panic: new, '10'",
        "process 7: gone, was 'sleep'",
        "process 8: new, 'java'",
    ]


def test_of_a_text_only_the_lines_that_differ_are_named() -> None:
    before = {"firewall": {"nft": "a\nb\nc"}, "folder": {"/run": "x\ny"}}
    after = {"firewall": {"nft": "a\nc\nd"}, "folder": {"/run": "y\nx"}}
    assert differences(before, after) == [
        "firewall nft: gone, 'b'",
        "firewall nft: new, 'd'",
        "folder /run: was 'x\\ny', became 'y\\nx'",
    ]


def test_a_kind_that_only_one_state_has_counts() -> None:
    assert differences({}, {"mount": {"30 /sys": "sysfs"}}) == ["mount 30 /sys: new, 'sysfs'"]


def test_a_machine_that_nobody_changes_has_an_equal_state(tmp_path: Path) -> None:
    assert differences(read_state([tmp_path]), read_state([tmp_path])) == []
