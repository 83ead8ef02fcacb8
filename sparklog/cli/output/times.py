"""Times as the commands print them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone


def utc(timestamp_ms: int) -> datetime:
    """Return the moment at this number of milliseconds since 1970; for negative ones too."""
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=timestamp_ms)


def utc_text(timestamp_ms: int) -> str:
    """Format a time as ``2026-11-22 11:45:34.000 UTC``."""
    return utc(timestamp_ms).isoformat(sep=" ", timespec="milliseconds").replace("+00:00", " UTC")
