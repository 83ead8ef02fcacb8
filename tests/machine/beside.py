"""Run a command beside what tests start and scripts/servers has no program for: an HDFS of a Kerberos realm, a Chromium
that has shown a page.

    python -m tests.machine.beside kerberos|chromium COMMAND [ARGUMENT ...]
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from scripts.servers import hdfs, kerberos
from scripts.servers.common import Skipped, run_beside, work_folder

USER = "sparklog"


@contextmanager
def secured_hdfs() -> Iterator[dict[str, str]]:
    """An HDFS that demands a ticket, and the variables of a process that has one."""
    with (
        work_folder("realm") as home,
        kerberos.realm(home / "realm", (*hdfs.PRINCIPALS, USER)) as realm,
        hdfs.file_system(realm=realm) as hadoop,
    ):
        ticket = realm.log_in(hdfs.DAEMON_PRINCIPAL, "ticket")
        yield {**hadoop.environment, **ticket, "SPARKLOG_TEST_HDFS_URL": hadoop.url}


@contextmanager
def chromium() -> Iterator[dict[str, str]]:
    """A Chromium with a page open, as tests/browser starts it."""
    program = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if program is None or find_spec("playwright") is None:
        raise Skipped("there is no Chromium, or no playwright: make test-ui")
    from playwright.sync_api import sync_playwright

    with work_folder("chromium") as home, sync_playwright() as driver:
        environment: dict[str, str | float | bool] = {
            **os.environ,
            **dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"), str(home)),
        }
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"], env=environment)
        page = browser.new_page()
        page.goto("data:text/html,<title>shown</title>")
        yield {"TITLE": page.title()}
        browser.close()


if __name__ == "__main__":
    name = sys.argv.pop(1)
    sys.exit(run_beside({"kerberos": secured_hdfs, "chromium": chromium}[name], __doc__ or ""))
