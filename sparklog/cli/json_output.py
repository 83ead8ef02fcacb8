"""``--json``: the option, and the one place where a document becomes text.

A document is one line of ASCII, so that it survives any terminal and any locale. Errors stay on standard error, and
exit codes are those without ``--json``.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from msgspec import Struct

    from sparklog.cli.common import CommandParser
    from sparklog.client.consumer import Consumer
    from sparklog.client.producer import Producer


def add_json(options: CommandParser, which: str = "", what: str = "one JSON object") -> None:
    """The option; ``which`` says where it belongs, for a command of several actions, and ``what`` is printed."""
    options.add_argument(
        "--json", action="store_true", help=f"{which}{': ' if which else ''}print {what} (docs/cli-json.md)"
    )


def metrics_of(client: Producer | Consumer, options: argparse.Namespace) -> dict[str, dict[str, float | None]] | None:
    """A client's metrics for a document, where ``--print-metrics`` asks for them."""
    import math

    def number(value: object) -> float | None:
        return value if isinstance(value, int | float) and math.isfinite(value) else None

    if not options.print_metrics:
        return None
    return {
        group: {name: number(value) for name, value in values.items()} for group, values in client.metrics().items()
    }


def print_json(document: Struct) -> None:
    """Print a document and hand it on at once, so that who reads a pipe gets it whole."""
    import json

    import msgspec

    sys.stdout.write(json.dumps(msgspec.to_builtins(document), separators=(",", ":")) + "\n")
    sys.stdout.flush()
