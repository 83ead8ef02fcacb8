"""The ASGI application of the web page: its routes, and how pages and errors become responses.

    app = create_app(Site.of([follower]), Sessions(access, clock, ids))

Rules: pages run in threads, since they read storage; a page's errors are pages. Every text in a template is escaped,
as HTML by default and by ``finalize`` for what HTML does not know: control characters and directions of writing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import jinja2
from anyio import CapacityLimiter, to_thread
from markupsafe import Markup, escape
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.convertors import IntegerConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from sparklog import __version__
from sparklog.errors import (
    GroupIdNotFoundError,
    InvalidCallError,
    InvalidConfigurationError,
    OffsetOutOfRangeError,
    SparklogError,
    StorageError,
    UnknownTopicOrPartitionError,
)
from sparklog.types import printable
from sparklog.ui import change_pages, pages, record_pages
from sparklog.ui.follower import StillReading
from sparklog.ui.guard import LOGIN_PATH, MAX_FORM_BYTES, Guard, Sessions, cookie_of
from sparklog.ui.site import Site, SitePage, Visit
from sparklog.ui.views import text
from sparklog.ui.views.query import RANGES, Query, address

logger = logging.getLogger(__name__)

FOLDER = Path(__file__).parent
MAX_PARAMETERS = 40
FORM_SECONDS = 30.0
"""Seconds within which a form has to arrive."""
CLUSTER_THREADS = 16
"""Pages of a cluster that are made at a time; others wait for one of them."""
RETRY_SECONDS = 2
"""Seconds after which a browser asks again for a page whose commits were still being read."""
_NOT_FOUND = (UnknownTopicOrPartitionError, GroupIdNotFoundError)
_INVALID = (InvalidConfigurationError, InvalidCallError, OffsetOutOfRangeError)


class _Number(IntegerConvertor):
    """A number in an address, of no more digits than Python reads."""

    regex = "[0-9]{1,40}"


register_url_convertor("number", _Number())

PAGES: Mapping[str, Callable[[Visit], SitePage | Response]] = {
    "": pages.show_cluster,
    "/topics": pages.show_topics,
    "/topics/{topic}": pages.show_topic,
    "/topics/{topic}/configs": pages.show_topic_configs,
    "/topics/{topic}/segments": pages.show_topic_segments,
    "/topics/{topic}/history": pages.show_topic_history,
    "/topics/{topic}/records": record_pages.show_records,
    "/topics/{topic}/records/download": record_pages.download_records,
    "/topics/{topic}/records/{partition:number}/{offset:number}": record_pages.show_one_record,
    "/topics/{topic}/records/{partition:number}/{offset:number}/value": record_pages.download_value,
    "/groups": pages.show_groups,
    "/group": pages.show_group,
    "/brokers": pages.show_brokers,
    "/transactions": pages.show_producers,
    "/commits": pages.show_commits,
    "/commits/{version:number}": pages.show_commit,
    "/maintenance": pages.show_maintenance,
    "/alerts": pages.show_alerts,
    "/configs": pages.show_configs,
}
"""The pages of a cluster, by their addresses below its name."""

NAVIGATION = (
    ("", "Overview"),
    ("topics", "Topics"),
    ("groups", "Groups"),
    ("brokers", "Brokers"),
    ("transactions", "Transactions"),
    ("commits", "Commits"),
    ("maintenance", "Maintenance"),
    ("alerts", "Alerts"),
    ("configs", "Configs"),
)


def create_app(site: Site, sessions: Sessions) -> Starlette:
    """Return the application that shows a site to those whom the sessions admit."""
    web = _Web(site, sessions)
    routes = [
        Route("/", web.overview, methods=["GET"]),
        Route(LOGIN_PATH, web.login, methods=["GET", "POST"]),
        Mount("/static", _Assets(directory=FOLDER / "static"), name="static"),
        Route("/{cluster}/", web.page(pages.show_cluster), methods=["GET"]),
        Route("/{cluster}/groups/{group:path}", web.page(pages.find_group), methods=["GET"]),
        *(
            Route(f"/{{cluster}}{path}", web.page(show), methods=["GET"], name=show.__name__)
            for path, show in PAGES.items()
        ),
    ]
    if site.allow_changes:
        routes[-len(PAGES) : -len(PAGES)] = [
            Route("/{cluster}/change/{change}", web.change, methods=["GET", "POST"], name="change")
        ]
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Guard, sessions=sessions), Middleware(GZipMiddleware, minimum_size=2000)],
        exception_handlers={HTTPException: web.http_error, Exception: web.unexpected_error},
    )
    app.router.redirect_slashes = False
    return app


class _Assets(StaticFiles):
    """The style sheet and the script, which change with the version in their address."""

    def file_response(self, *arguments: Any, **options: Any) -> Response:
        response = super().file_response(*arguments, **options)
        response.headers["cache-control"] = "public, max-age=86400"
        return response


class _Web:
    """The endpoints. Thread-safe."""

    def __init__(self, site: Site, sessions: Sessions) -> None:
        self._site = site
        self._sessions = sessions
        self._templates = _environment()
        self._threads: dict[str, CapacityLimiter] = {}

    async def overview(self, request: Request) -> Response:
        return await run_in_threadpool(self._overview, request)

    def _overview(self, request: Request) -> Response:
        query = _query(request)
        return self._render(request, query, pages.show_overview(self._site, query))

    def page(self, show: Callable[[Visit], SitePage | Response]) -> Callable[[Request], Any]:
        """Return the endpoint of a page of a cluster."""

        async def endpoint(request: Request) -> Response:
            return await self._show_in_thread(request, show)

        return endpoint

    async def _show_in_thread(self, request: Request, show: Callable[[Visit], SitePage | Response]) -> Response:
        """Make a page in a thread, of which each cluster has some: one that hangs holds up no other's pages."""
        name, threads = request.path_params["cluster"], None
        if name in self._site.clusters:
            threads = self._threads.setdefault(name, CapacityLimiter(CLUSTER_THREADS))
        return await to_thread.run_sync(self._show, request, show, limiter=threads)

    def _show(self, request: Request, show: Callable[[Visit], SitePage | Response]) -> Response:
        query = _query(request)
        cluster = self._site.clusters.get(request.path_params["cluster"])
        if cluster is None:
            return self._error(request, query, 404, "There is no such cluster here.", None)
        state = cluster.state()
        now_ms = max(cluster.now_ms, state.timestamp_ms)
        visit = Visit(self._site, cluster, state, query, request.path_params, now_ms, self._csrf(request))
        try:
            answer = show(visit)
        except StillReading:
            answer = SitePage("reading.html", {"title": "Reading commits"}, is_incomplete=True)
        except SparklogError as error:
            return self._error(request, query, _status(error), error.message, visit)
        return answer if isinstance(answer, Response) else self._render(request, query, answer, visit)

    async def change(self, request: Request) -> Response:
        """Show the form of a change, then what it will do, and then do it."""
        form = None
        if request.method == "POST":
            form = await read_form(request)
            if not self._sessions.is_csrf(request.scope.get("session_cookie", ""), form.pop("csrf", "")):
                raise HTTPException(403, "The form has expired, or is of another site: load it again.")
        return await self._show_in_thread(request, lambda visit: change_pages.show_change(visit, form))

    def _csrf(self, request: Request) -> str:
        return self._sessions.csrf(request.scope.get("session_cookie", ""))

    def _render(self, request: Request, query: Query, page: SitePage, visit: Visit | None = None) -> Response:
        values: dict[str, Any] = {
            "query": query,
            "clusters": list(self._site.clusters),
            "navigation": NAVIGATION,
            "cluster": visit.name if visit else "",
            "section": _section(query.path),
            "now_ms": visit.now_ms if visit else 0,
            "version": visit.state.version if visit else None,
            "csrf": self._csrf(request),
            "allow_changes": self._site.allow_changes,
            "stale": "",
        }
        if visit is not None:
            from sparklog.ui.views.overview import freshness

            values["stale"] = freshness(*visit.cluster.status, visit.now_ms)
            values["root"] = visit.cluster.root
        html = self._templates.get_template(page.template).render({**values, **page.values})
        headers = {"refresh": str(RETRY_SECONDS)} if page.is_incomplete else None
        return HTMLResponse(html.encode("utf-8", "backslashreplace"), page.status, headers)

    def _error(self, request: Request, query: Query, status: int, message: str, visit: Visit | None) -> Response:
        titles = {400: "Invalid request", 404: "Not found", 503: "The storage does not answer"}
        values = {"title": titles.get(status, "Something failed"), "message": message}
        return self._render(request, query, SitePage("error.html", values, status), visit)

    async def http_error(self, request: Request, error: Exception) -> Response:
        """Answer a request that no page is for."""
        assert isinstance(error, HTTPException)
        if error.status_code == 404:
            return self._error(request, _query(request), 404, "There is no such page.", None)
        return PlainTextResponse(f"{error.detail}\n", error.status_code, dict(error.headers or {}))

    async def unexpected_error(self, request: Request, error: Exception) -> Response:
        """Answer a request that failed in a way that nobody expected; the log has the error, the page has not."""
        logger.error("%s %s failed", request.method, printable(request.url.path), exc_info=error)
        return PlainTextResponse("Unexpected error; the log of `sparklog ui` has it.\n", 500)

    async def login(self, request: Request) -> Response:
        """Show the form for the token, or begin a session with it."""
        query, page = _query(request), SitePage("login.html", {"title": "Sign in", "failed": False})
        if request.method == "GET" or not self._sessions.access.token:
            return self._render(request, query, page)
        form = await read_form(request)
        if not self._sessions.is_token(form.get("token", "")):
            return self._render(request, query, SitePage(page.template, {**page.values, "failed": True}, 403))
        session = cookie_of(self._sessions.new_session(), self._sessions.access.secure_cookies)
        return RedirectResponse("/", 303, {"set-cookie": session})


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form. Raises HTTPException if it is too large or too slow, or no form."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/x-www-form-urlencoded":
        raise HTTPException(415, "Expected a form.")
    try:
        body = await asyncio.wait_for(_read_body(request), FORM_SECONDS)
    except asyncio.TimeoutError:
        raise HTTPException(408, "The form took too long to arrive.") from None
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=MAX_PARAMETERS)
    except ValueError:
        raise HTTPException(400, "Invalid form.") from None
    return dict(pairs)


async def _read_body(request: Request) -> bytes:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_FORM_BYTES:
            raise HTTPException(413, "The form is too large.")
    return body


def _query(request: Request) -> Query:
    try:
        pairs = parse_qsl(request.url.query, keep_blank_values=True, max_num_fields=MAX_PARAMETERS)
    except ValueError:
        raise HTTPException(400, "Too many parameters.") from None
    path = request.url.path.rstrip("/") or "/"
    return Query(address(*request.scope["path"].strip("/").split("/")) if path != "/" else "/", dict(pairs))


def _section(path: str) -> str:
    parts = path.strip("/").split("/")
    section = parts[1] if len(parts) > 1 else ""
    return "groups" if section == "group" else section


def _status(error: SparklogError) -> int:
    if isinstance(error, _NOT_FOUND):
        return 404
    if isinstance(error, _INVALID):
        return 400
    return 503 if isinstance(error, StorageError) else 500


@lru_cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        finalize=_finalize,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for each in (text.number, text.size, text.duration, text.time, text.ago, text.shown):
        environment.filters[each.__name__] = each
    environment.filters["verbatim"] = lambda value: Markup(escape(value))  # in a form that sends it back, never shown
    environment.filters["block"] = lambda value: Markup(escape(text.block(str(value))))
    environment.globals.update(address=address, ranges=RANGES, release=__version__)
    return environment


def _finalize(value: object) -> object:
    """Escape what HTML does not: called by Jinja with everything that a template prints."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value
