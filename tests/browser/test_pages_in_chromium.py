"""Every page in a real Chromium: no errors on the console, no violations of accessibility, usable by keyboard, on a
phone and in the dark. Takes the screenshots of the documents with ``SPARKLOG_SCREENSHOTS=1``.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow.parquet as pq
import pytest

from sparklog.monitoring.alerts.rule_file import read_rule_file
from sparklog.testing.records import Record, append_records
from sparklog.ui.alert_watch import AlertWatch
from tests.shown_cluster import HOSTILE_GROUP, SCRIPT, make_shown_cluster
from tests.web import Web, serving

pytestmark = pytest.mark.ui

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs" / "images"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
HAS_DRIVER = find_spec("playwright") is not None and find_spec("axe_playwright_python") is not None

PAGES = {
    "clusters": "/",
    "cluster": "/log",
    "topics": "/log/topics",
    "topic": "/log/topics/orders",
    "configs": "/log/topics/orders/configs?show=all",
    "segments": "/log/topics/orders/segments",
    "history": "/log/topics/orders/history",
    "records": "/log/topics/orders/records",
    "hostile-records": "/log/topics/audit/records?from=start",
    "record": "/log/topics/orders/records/0/3",
    "avro-records": "/log/topics/payments/records?from=start",
    "avro-record": "/log/topics/payments/records/0/1",
    "groups": "/log/groups",
    "group": "/log/group?name=billing",
    "hostile-group": f"/log/group?name={quote(HOSTILE_GROUP, safe='')}",
    "brokers": "/log/brokers",
    "transactions": "/log/transactions",
    "commits": "/log/commits",
    "commit": "/log/commits/60",
    "maintenance": "/log/maintenance",
    "alerts": "/log/alerts",
    "cluster-configs": "/log/configs",
    "error": "/log/topics/missing",
    "login": "/login",
}
SHOWN = ("cluster", "topic", "records", "group", "commits", "commit", "segments", "alerts")
"""Pages of which the documents have a picture."""
HOSTILE_VALUE = f"<img src=x onerror=alert(1)>{SCRIPT}"
WIDTH, HEIGHT = 1280, 860
PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("no Chromium in PATH: bash scripts/chromium.sh")
    if not HAS_DRIVER:
        pytest.skip("playwright or axe is not installed: bash scripts/setup.sh dev,browser")
    from playwright.sync_api import sync_playwright

    home = str(tmp_path_factory.mktemp("home"))
    environment: dict[str, str | float | bool] = {
        **os.environ,
        "HOME": home,
        "XDG_CONFIG_HOME": home,
        "XDG_CACHE_HOME": home,
    }
    with sync_playwright() as driver:
        running = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--font-render-hinting=none"], env=environment
        )
        try:
            yield running
        finally:
            running.close()


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    cluster = make_shown_cluster("data/log")
    state = tmp_path_factory.mktemp("alerts") / "alerts.state"
    alerts = AlertWatch(read_rule_file(str(ROOT / "conf" / "alerts.toml")), str(state))
    with serving(cluster, clock=cluster.log.clock, alerts=alerts) as running:
        alerts.evaluate(list(running.followers.values()))
        yield running


class Tab:
    """A tab that remembers what went wrong."""

    def __init__(self, browser: Any, web: Web, **options: Any) -> None:
        self.context = browser.new_context(**{"viewport": {"width": WIDTH, "height": HEIGHT}, **options})
        self.page = self.context.new_page()
        self.problems: list[str] = []
        self.page.on("console", lambda message: self._note(message.type, message.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", lambda request: self._note_request(request.url, web.url))
        self._url = web.url

    def _note(self, kind: str, text: str) -> None:
        if kind in ("error", "warning") and "404" not in text:
            self.problems.append(text)

    def _note_request(self, url: str, origin: str) -> None:
        if not url.startswith(f"{origin}/"):
            self.problems.append(f"request to {url}")

    def open(self, path: str) -> Any:
        self.page.goto(f"{self._url}{path}")
        return self.page


@pytest.fixture(scope="module", params=["light", "dark"])
def tab(request: pytest.FixtureRequest, browser: Any, web: Web) -> Iterator[Tab]:
    tab = Tab(browser, web, color_scheme=request.param)
    yield tab
    tab.context.close()


@pytest.fixture(scope="module")
def phone(browser: Any, web: Web) -> Iterator[Tab]:
    tab = Tab(browser, web, viewport=PHONE, is_mobile=True, has_touch=True)
    yield tab
    tab.context.close()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_no_errors_and_is_accessible(tab: Tab, name: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    page = tab.open(PAGES[name])
    results = Axe().run(page)
    assert results.violations_count == 0, results.generate_report()
    assert tab.problems == []


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_a_phone(phone: Tab, name: str) -> None:
    page = phone.open(PAGES[name])
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert phone.problems == []


def test_topics_are_searched_and_sorted_by_keyboard(tab: Tab) -> None:
    page = tab.open("/log/topics")
    page.keyboard.press("/")
    page.keyboard.type("ord")
    page.keyboard.press("Enter")
    page.wait_for_url("**/topics?q=ord")
    assert page.locator("tbody tr").count() == 1
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/topics/orders")
    page.get_by_role("link", name="Size").press("Enter")
    page.wait_for_url("**sort=-bytes")
    assert page.get_by_role("columnheader", name="Size").get_attribute("aria-sort") == "descending"
    assert tab.problems == []


def test_the_first_key_leads_past_the_navigation(tab: Tab) -> None:
    page = tab.open("/log/topics")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"


def test_a_live_page_follows_the_end_and_leaves_the_reader_where_he_was(browser: Any) -> None:
    from axe_playwright_python.sync_playwright import Axe

    import sparklog
    import sparklog.testing

    with sparklog.testing.cluster(topics={"orders": 1}) as cluster, serving(cluster.coordinator) as web:
        append_records(cluster.coordinator, "orders", [Record(b"k", b"record %d" % n) for n in range(60)])
        tab = Tab(browser, web)
        page = tab.open("/log/topics/orders/records")
        page.get_by_role("button", name="Live").click()
        page.get_by_role("button", name="Pause live").wait_for()
        row = page.locator("#r0-40")
        row.get_by_role("link").focus()
        row.scroll_into_view_if_needed()
        page.get_by_label("Key contains").evaluate("field => { field.value = 'typed'; }")
        row.locator("pre").nth(1).evaluate("text => getSelection().selectAllChildren(text)")
        at = row.bounding_box()
        append_records(cluster.coordinator, "orders", [Record(b"k", f"{HOSTILE_VALUE} just now".encode())])
        page.get_by_text("just now").wait_for(timeout=60_000)
        assert page.evaluate("document.activeElement.closest('li').id") == "r0-40"
        assert page.evaluate("getSelection().toString()") == "record 40"
        assert page.get_by_label("Key contains").input_value() == "typed"
        assert row.bounding_box()["y"] == pytest.approx(at["y"], abs=1)  # less than what a screen shows
        assert page.locator("#found > li").count() == 50
        assert page.locator("main script, main img").count() == 0
        page.locator("#said", has_text="1 new record.").wait_for(state="attached")
        assert Axe().run(page).violations_count == 0
        page.get_by_role("button", name="Pause live").press("Enter")
        page.get_by_role("button", name="Resume live").wait_for()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        append_records(cluster.coordinator, "orders", [Record(b"k", b"later")])
        page.wait_for_timeout(3500)
        assert asked == []
        page.get_by_role("button", name="Resume live").press("Enter")
        page.get_by_text("later").wait_for(timeout=60_000)
        assert tab.problems == []
        tab.context.close()


@pytest.mark.parametrize("has_clipboard", [True, False])
def test_a_key_a_value_and_a_link_are_copied_by_keyboard(browser: Any, web: Web, has_clipboard: bool) -> None:
    tab = Tab(browser, web, permissions=["clipboard-read", "clipboard-write"])
    if not has_clipboard:  # as on a page that is neither HTTPS nor on this machine
        tab.page.add_init_script("delete Navigator.prototype.clipboard")
    reader = Tab(browser, web, permissions=["clipboard-read", "clipboard-write"])
    for path, copied in (
        ("/log/topics/audit/records?from=start&partition=0", {"Copy the value of record 0 : 4": HOSTILE_VALUE}),
        (
            "/log/topics/audit/records/0/5",
            {"Copy the key": "abc\\u202etxt.exe", "Copy the value": r"bell\x07 escape\x1b[2J"},
        ),
        (
            "/log/topics/payments/records?from=start&format=avro",
            {
                "Copy the value of record 0 : 0": '{"payer": "anna", "cents": 1250, "notes": [], "paid": "2026-11-01"}',
                "Copy link to record 0 : 0": f"{web.url}/log/topics/payments/records/0/0?format=avro",
            },
        ),
        (
            "/log/topics/payments/records/0/0?format=hex",
            {"Copy link to this record": f"{web.url}/log/topics/payments/records/0/0?format=hex"},
        ),
    ):
        page = tab.open(path)
        for name, text in copied.items():
            button = page.get_by_role("button", name=name, exact=True)
            button.press("Enter")
            button.filter(has_text="Copied").wait_for()
            page.locator("#said", has_text=f"Copied the {name.removeprefix('Copy ').removeprefix('the ')}.").wait_for(
                state="attached"
            )
            assert button.evaluate("button => button === document.activeElement")
            clipboard = reader.open("/static/icon.svg") if not has_clipboard else page
            clipboard.bring_to_front()
            assert clipboard.evaluate("navigator.clipboard.readText()") == text
            page.bring_to_front()
    assert tab.problems == []
    tab.context.close()
    reader.context.close()


def test_records_are_downloaded_as_parquet_by_a_link(browser: Any, web: Web) -> None:
    tab = Tab(browser, web, accept_downloads=True)
    page = tab.open("/log/topics/audit/records?from=start")
    with page.expect_download() as waiting:
        page.get_by_role("link", name="Parquet").press("Enter")
    assert waiting.value.suggested_filename == "audit.parquet"
    assert pq.read_table(waiting.value.path()).column("value").to_pylist()[:4] == [b"hello", b"", None, None]
    assert tab.problems == []
    tab.context.close()


def test_a_topic_is_created_and_filled_with_the_keyboard(browser: Any) -> None:
    from axe_playwright_python.sync_playwright import Axe

    import sparklog.testing

    with sparklog.testing.cluster() as cluster, serving(cluster.coordinator, allow_changes=True) as web:
        tab = Tab(browser, web)
        page = tab.open("/log/topics")
        page.get_by_role("link", name="Create topic").press("Enter")
        page.get_by_label("Name").fill("orders")
        page.get_by_label("Configs").fill("retention.ms=1000\nsegment.ms=500")
        assert Axe().run(page).violations_count == 0
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.get_by_text("Topic orders is created with 1 partition").wait_for()
        assert Axe().run(page).violations_count == 0
        page.get_by_role("button", name="Create topic").press("Enter")
        page.get_by_role("link", name="Show it").press("Enter")
        page.get_by_role("link", name="Produce").click()
        page.get_by_label("Value", exact=True).fill("two\nlines")
        page.get_by_role("button", name="Show what will happen").click()
        page.get_by_role("button", name="Append record").click()
        page.get_by_text("The record has offset 0").wait_for()
        assert tab.problems == []
        tab.context.close()
        assert cluster.coordinator.state.topic("orders").configs == {"retention.ms": "1000", "segment.ms": "500"}
        assert [record.value for record in cluster.records("orders")] == [b"two\nlines"]


def test_maintenance_is_run_with_the_keyboard_and_shows_how_far_it_is(browser: Any) -> None:
    from axe_playwright_python.sync_playwright import Axe

    import sparklog.testing

    with sparklog.testing.cluster(topics={"orders": 1}) as cluster:
        for number in range(5):
            append_records(cluster.coordinator, "orders", [Record(b"k", b"%d" % number)])
        with serving(cluster.coordinator, allow_changes=True) as web:
            tab = Tab(browser, web)
            page = tab.open("/log/maintenance")
            page.get_by_role("link", name="Run once").press("Enter")
            page.get_by_label("Steps").fill("roll, retention")
            page.keyboard.press("Enter")
            page.get_by_text("roll: 5 files").wait_for()
            assert Axe().run(page).violations_count == 0
            page.get_by_role("button", name="Start the pass").press("Enter")
            page.get_by_role("link", name="Show it").press("Enter")
            page.get_by_text("files rewritten 5").wait_for(timeout=60_000)
            page.get_by_text(", took ").wait_for(timeout=60_000)
            assert Axe().run(page).violations_count == 0
            assert tab.problems == []
            tab.context.close()
        assert cluster.coordinator.refresh().partition("orders", 0).segments == 1


def test_pages_work_without_scripts(browser: Any, web: Web) -> None:
    tab = Tab(browser, web, java_script_enabled=False)
    page = tab.open("/log/topics")
    page.get_by_role("link", name="Partitions").click()
    page.wait_for_url("**sort=-partitions")
    page.get_by_role("link", name="orders").click()
    page.get_by_role("link", name="Records", exact=True).click()
    page.get_by_label("Key contains").fill("customer-3")
    page.get_by_role("button", name="Show records").click()
    page.wait_for_url("**key=customer-3**")
    assert page.locator("ol.records > li").count() > 0
    assert not page.get_by_role("button", name="Copy").count()
    page.get_by_role("link", name="Renew every 3 s").click()
    page.wait_for_url("**live=on")
    with page.expect_navigation():
        pass
    page.get_by_role("link", name="Stop renewing").click()
    page.get_by_role("link", name="Renew every 3 s").wait_for()
    tab.context.close()


def test_hostile_texts_run_nothing(tab: Tab) -> None:
    page = tab.page
    asked: list[str] = []
    page.on("dialog", lambda dialog: (asked.append(dialog.message), dialog.dismiss()))
    for path in (
        *("/log/topics/audit/records?from=start", "/log/topics/audit/records/0/4", PAGES["hostile-group"]),
        *("/log/topics/payments/records?from=start", "/log/topics/payments/records/0/2"),
    ):
        tab.open(path)
        assert page.locator("main script, main img").count() == 0
    assert asked == []


@pytest.mark.skipif("SPARKLOG_SCREENSHOTS" not in os.environ, reason="SPARKLOG_SCREENSHOTS=1 takes the screenshots")
def test_the_pictures_of_the_documents_are_taken(browser: Any, web: Web) -> None:
    folder = Path(os.environ["SPARKLOG_SCREENSHOTS"])
    if str(folder) == "1":
        folder = IMAGES
    folder.mkdir(parents=True, exist_ok=True)
    tabs = {
        "": Tab(browser, web),
        "-dark": Tab(browser, web, color_scheme="dark"),
        "-phone": Tab(browser, web, viewport=PHONE, is_mobile=True),
    }
    for suffix, tab in tabs.items():
        for name in SHOWN if folder == IMAGES else PAGES:
            page = tab.open(PAGES[name])
            if folder != IMAGES or not suffix or name == "group":
                page.screenshot(path=folder / f"ui-{name}{suffix}.png", full_page=folder != IMAGES)
        tab.context.close()
