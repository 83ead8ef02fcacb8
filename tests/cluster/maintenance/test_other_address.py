"""Maintenance of a root under another address than its locations name: another mount path, a moved root, a copy.

What the same root may be changes nothing; what is certainly a copy takes its locations offline, in its own log.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sparklog.coordinator import open_cluster
from sparklog.coordinator.controller import Controller
from sparklog.coordinator.health import Health
from sparklog.coordinator.ownership import check_all_owned
from sparklog.coordinator.take_over import take_over
from sparklog.errors import BrokerNotAvailableError
from sparklog.maintenance.gc.sweep import sweep
from tests.cluster.maintenance.replicas import TOPIC, Replicas


def look(root: Path) -> dict[int, Health]:
    """Let a controller that uses this address look at all locations, once."""
    controller = Controller(open_cluster(str(root)))
    findings = controller.check().findings
    controller.resign()
    return {finding.broker: finding.health for finding in findings}


def in_use(tmp_path: Path) -> Replicas:
    replicas = Replicas(tmp_path)
    replicas.produce()
    replicas.controller.check()
    replicas.controller.resign()
    return replicas


def assert_unchanged(root: Path) -> None:
    state = open_cluster(str(root)).state
    assert all(state.brokers[number].online for number in (1, 2))
    assert (state.partition(TOPIC, 0).leader, set(state.partition(TOPIC, 0).isr)) == (1, {1, 2})


@pytest.mark.parametrize("gone", [(), (1,), (1, 2)])
def test_a_pass_under_another_path_changes_nothing(tmp_path: Path, gone: tuple[int, ...]) -> None:
    replicas = in_use(tmp_path)
    elsewhere = (tmp_path / "root").rename(tmp_path / "mount")
    for number in gone:  # that machine mounts the locations elsewhere, too
        replicas.unmount(number)
    assert look(elsewhere) == {1: Health.OTHER_ADDRESS, 2: Health.OTHER_ADDRESS}
    if not gone:
        with pytest.raises(BrokerNotAvailableError, match="under another address"):
            sweep(open_cluster(str(elsewhere)))
    elsewhere.rename(tmp_path / "root")
    for number in gone:
        replicas.mount(number)
    assert_unchanged(tmp_path / "root")
    assert look(tmp_path / "root") == {1: Health.OK, 2: Health.OK}


def test_a_moved_root_owns_its_locations_again_after_a_take_over(tmp_path: Path) -> None:
    in_use(tmp_path)
    elsewhere = (tmp_path / "root").rename(tmp_path / "moved")
    look(elsewhere)
    take_over(open_cluster(str(elsewhere)))
    assert_unchanged(elsewhere)
    assert look(elsewhere) == {1: Health.OK, 2: Health.OK}
    check_all_owned(open_cluster(str(elsewhere)))


def test_a_copy_whose_original_answers_takes_the_locations_offline_in_its_log(tmp_path: Path) -> None:
    in_use(tmp_path)
    shutil.copytree(tmp_path / "root", tmp_path / "copy")
    assert look(tmp_path / "copy") == {1: Health.FAILED, 2: Health.FAILED}
    assert not any(
        broker.online for broker in open_cluster(str(tmp_path / "copy")).state.brokers.values() if broker.url
    )
    assert_unchanged(tmp_path / "root")


def test_a_copy_takes_the_locations_offline_once_its_original_has_recorded_again(tmp_path: Path) -> None:
    replicas = in_use(tmp_path)
    shutil.copytree(tmp_path / "root", tmp_path / "copy")
    replicas.produce()
    sweep(replicas.cluster)
    (tmp_path / "root").rename(tmp_path / "another machine")
    assert look(tmp_path / "copy") == {1: Health.FAILED, 2: Health.FAILED}


def test_a_location_that_is_lost_is_taken_offline_under_the_usual_address(tmp_path: Path) -> None:
    replicas = in_use(tmp_path)
    replicas.unmount(1)
    assert look(tmp_path / "root") == {1: Health.FAILED, 2: Health.OK}
    assert open_cluster(str(tmp_path / "root")).state.partition(TOPIC, 0).leader == 2


BIND = """
import subprocess, sys
from pathlib import Path
from tests.cluster.maintenance.test_other_address import look
root, mount = Path(sys.argv[1]), Path(sys.argv[2])
mount.mkdir()
if subprocess.run(["mount", "--bind", root, mount], capture_output=True).returncode:
    sys.exit(77)
print(sorted({health.value for health in look(mount).values()}))
"""


def test_a_second_mount_of_the_same_folder_is_no_other_root(tmp_path: Path) -> None:
    in_use(tmp_path)
    arguments = [sys.executable, "-c", BIND, str(tmp_path / "root"), str(tmp_path / "mount")]
    done = subprocess.run(["unshare", "-rm", *arguments], capture_output=True, text=True, check=False)
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("mounting is not permitted here")
    assert done.stdout == "['other address']\n", done.stderr
    assert_unchanged(tmp_path / "root")
