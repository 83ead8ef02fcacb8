"""Parses the address that a command listens on. Not for: who reaches it (``monitoring.listen_address``)."""

from __future__ import annotations

import re

from sparklog.cli.arguments.parser import UsageError

_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.%]+)\]|([^\[\]:\s]*)):(\d{1,5})")


def parse_listen(text: str, flag: str = "--listen") -> tuple[str, int]:
    """Return host and port of ``127.0.0.1:9308``, ``[::1]:9308`` or ``:9308`` (all addresses). Raises UsageError."""
    match = _ADDRESS.fullmatch(text.strip())
    if match is None or int(match[3]) > 65535:
        raise UsageError(f"invalid {flag} {text!r}: give HOST:PORT, such as 127.0.0.1:9308 or [::1]:9308")
    return match[1] or match[2] or "0.0.0.0", int(match[3])
