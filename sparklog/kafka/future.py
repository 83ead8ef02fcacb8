"""The base class of the futures that ``send`` returns: ``kafka.future``."""

from __future__ import annotations

from sparklog.client.producer.futures import Future

__all__ = ["Future"]
