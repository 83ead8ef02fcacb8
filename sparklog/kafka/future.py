"""The future of ``kafka.future``: what ``send`` returns is one."""

from __future__ import annotations

from sparklog.client.producer.futures import Future

__all__ = ["Future"]
