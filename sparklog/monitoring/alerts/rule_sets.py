"""Which of several sets of rules a file of alerts belongs to: the newest that is in use.

    if is_replaced(used, digest_of(book), time_ms): ...

A process with other rules than those of the last evaluation takes over, as after a change of the rules. One whose rules
were replaced that way is refused while the newer ones are in use: else the two would let each other's alerts fire and
resolve in turn.

Rules: pure. Not for: keeping what was used (``alert_file``).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from sparklog.monitoring.alerts.rules import RuleBook

IN_USE_MS = 900_000
"""ms since their last evaluation for which rules count as in use."""


def digest_of(book: RuleBook) -> str:
    """Return what tells rules from others: their content, and the names of the channels."""
    content = [[*rule] for rule in book.rules]
    text = json.dumps([content, sorted(book.channels)], sort_keys=True, default=list)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def is_replaced(used_ms: Mapping[str, int], digest: str, time_ms: int) -> bool:
    """Return whether these rules were replaced by others that are in use.

    ``used_ms`` are the times of the last evaluation of each set of rules, the one that was used last at the end.
    """
    newest = next(reversed(list(used_ms)), digest)
    return digest != newest and digest in used_ms and abs(time_ms - used_ms[newest]) < IN_USE_MS
