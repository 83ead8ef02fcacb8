"""``--json``: adds the option and prints documents.

Rules: a document is one line of ASCII, so that it survives any terminal and locale. Errors stay on standard error, and
exit codes are the same as without ``--json``.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from msgspec import Struct

    from sparklog.cli.arguments.parser import CommandParser
    from sparklog.client.consumer.consumer import Consumer
    from sparklog.client.producer.producer import Producer


def add_json(options: CommandParser, which: str = "", what: str = "one JSON object") -> None:
    """Add the option; ``which`` names the actions that support it, ``what`` is printed."""
    options.add_switch("--json", f"{which}{': ' if which else ''}print {what} (docs/cli-json.md)")


def metrics_of(client: Producer | Consumer, options: argparse.Namespace) -> dict[str, dict[str, float | None]] | None:
    """Return a client's metrics for a document with ``--print-metrics``, else None."""

    def number(value: object) -> float | None:
        return value if isinstance(value, int | float) and math.isfinite(value) else None

    if not options.print_metrics:
        return None
    return {
        group: {name: number(value) for name, value in values.items()} for group, values in client.metrics().items()
    }


def print_document(document: Struct, as_json: bool, lines: Iterable[str]) -> None:
    """Print a document as JSON, or else these lines, which a generator then need not make."""
    if as_json:
        print_json(document)
        return
    for line in lines:
        print(line)


def print_json(document: Struct) -> None:
    """Print a document and flush it immediately, so that the reader of a pipe gets complete lines."""
    import json

    import msgspec

    sys.stdout.write(json.dumps(msgspec.to_builtins(document), separators=(",", ":")) + "\n")
    sys.stdout.flush()
