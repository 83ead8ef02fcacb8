"""sparklog features: the cluster's feature level, described and raised."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparklog.coordinator import Coordinator, open_cluster
from sparklog.protocol import levels
from sparklog.protocol.commits import commit_key

from .conftest import Run


def line(level: int, version: int) -> str:
    lowest, highest = levels.OLDEST_WRITTEN, levels.CURRENT
    return (
        f"Feature: metadata.version\tSupportedMinVersion: {lowest}\tSupportedMaxVersion: {highest}"
        f"\tFinalizedVersionLevel: {level}\tEpoch: {version}"
    )


def test_a_new_cluster_has_the_newest_level(run: Run, cluster: Coordinator) -> None:
    assert run("features", "describe").lines == [line(levels.CURRENT, cluster.state.version)]


@pytest.mark.parametrize(
    "asked",
    [(), ("--feature-level", "3"), ("--release-version", "0.3.0"), ("--feature", "metadata.version=3")],
)
def test_a_level_is_raised_by_one_commit_without_actions(run: Run, tmp_path: Path, asked: tuple[str, ...]) -> None:
    root = str(tmp_path / "cluster")
    run("cluster", "create", "--release-version", "0.2.9", "--bootstrap-server", root)
    assert run("features", "describe", "--bootstrap-server", root).lines == [line(2, 0)]
    assert run("features", "upgrade", "--dry-run", *asked, "--bootstrap-server", root).lines == [
        "metadata.version can be upgraded to 3."
    ]
    assert open_cluster(root).state.version == 0
    assert run("features", "upgrade", *asked, "--bootstrap-server", root).lines == [
        "metadata.version was upgraded to 3."
    ]
    opened = open_cluster(root)
    commit = json.loads(opened.store.get(commit_key(1)))
    assert (commit["format"], commit["needs"], commit["actions"]) == (3, "0.3.0", [])
    assert (opened.state.level, opened.state.version) == (3, 1)
    for dry in ((), ("--dry-run",)):
        assert run("features", "upgrade", *dry, "--bootstrap-server", root).lines == ["metadata.version is 3 already."]
    assert open_cluster(root).state.version == 1


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (
            ("downgrade", "--feature-level", "2"),
            "Could not downgrade metadata.version to 2. the feature level cannot be",
        ),
        (("upgrade", "--release-version", "0.2.0"), "restore a copy of the root that was made before the upgrade"),
        (("upgrade", "--feature-level", "4"), "this sparklog knows levels up to 3; upgrade sparklog first"),
        (("upgrade", "--release-version", "9.0"), "unknown release version '9.0'"),
        (("upgrade", "--feature", "kraft.version=1"), "Can't parse feature=level string kraft.version=1"),
        (("upgrade", "--feature-level", "3", "--release-version", "0.3.0"), "release-version"),
        (("describe", "--dry-run"), "can't be used with"),
    ],
)
def test_what_cannot_be_done_is_refused(run: Run, cluster: Coordinator, arguments: tuple[str, ...], why: str) -> None:
    before = cluster.state.version
    failed = run("features", *arguments)
    assert failed.code == 1
    assert why in failed.err
    assert cluster.refresh().version == before


@pytest.mark.parametrize(
    "asked", [(), ("--feature-level", "3"), ("--release-version", "0.3.0"), ("--feature", "metadata.version=3")]
)
@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_a_downgrade_never_raises_the_level(
    run: Run, tmp_path: Path, asked: tuple[str, ...], dry: tuple[str, ...]
) -> None:
    root = str(tmp_path / "cluster")
    run("cluster", "create", "--release-version", "0.2.0", "--bootstrap-server", root)
    failed = run("features", "downgrade", *asked, *dry, "--bootstrap-server", root)
    assert failed.code == 1
    assert ("a downgrade does not raise it to 3" if asked else "cannot be lowered from 2 to 1") in failed.err
    assert (open_cluster(root).state.level, open_cluster(root).state.version) == (2, 0)
    same = run("features", "downgrade", *dry, "--feature-level", "2", "--bootstrap-server", root)
    assert same.lines == ["metadata.version is 2 already."]


def test_a_release_is_mapped_to_its_level(run: Run, cluster: Coordinator) -> None:
    assert run("features", "version-mapping", "--release-version", "0.2.4").lines == ["metadata.version=2 (0.2.0)"]
    assert run("features", "version-mapping").lines == [f"metadata.version={levels.CURRENT} ({levels.NEEDS})"]


def test_describe_says_that_a_cluster_can_be_upgraded(run: Run, tmp_path: Path) -> None:
    root = str(tmp_path / "cluster")
    run("cluster", "create", "--release-version", "0.2.0", "--bootstrap-server", root)
    lines = run("cluster", "describe", "--bootstrap-server", root).lines
    assert "Level:      2 (needs sparklog 0.2.0 or newer; `sparklog features upgrade` raises it to 3)" in lines
    assert (
        "unknown release" in run("cluster", "create", "--release-version", "x", "--bootstrap-server", f"{root}-2").err
    )
    refused = run("cluster", "create", "--release-version", "0.1.0", "--bootstrap-server", f"{root}-2")
    assert "it writes levels 2 to 3" in refused.err
