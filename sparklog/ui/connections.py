"""How the web page's server treats connections: within bounds, also those whose clients do nothing.

    uvicorn.Server(server_config(app)).run(sockets=[listener])

A connection is closed if no request of it arrives whole within ``PATIENCE_SECONDS`` to twice as long, or if its client
takes nothing of a response for that long: connections are few, and otherwise an idle client could hold all of them.

Not for: what requests may do (``guard``).
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

PATIENCE_SECONDS = 15.0
MAX_CONNECTIONS = 200
"""Connections beyond which a request is answered with 503."""


class PatientProtocol(H11Protocol):
    """HTTP on one connection, which ends if its client does nothing for too long."""

    def __init__(self, patience: float, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._patience = patience
        self._seen: tuple[object, int] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._timer = self.loop.call_later(self._patience, self._check)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def _check(self) -> None:
        cycle: Any = self.cycle  # None before the first request
        is_waiting = cycle is None or cycle.response_complete
        unsent = self.transport.get_write_buffer_size()
        seen = cycle, unsent
        if (is_waiting or unsent) and seen == self._seen:
            self.transport.abort()
            return
        self._seen = seen
        self._timer = self.loop.call_later(self._patience, self._check)


def server_config(app: Any, patience: float = PATIENCE_SECONDS) -> uvicorn.Config:
    """Return how the server of the web page runs. Nothing that clients send is logged."""
    return uvicorn.Config(
        app,
        http=partial(PatientProtocol, patience),  # type: ignore[arg-type]
        ws="none",
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=10,
        timeout_graceful_shutdown=3,
    )
