"""The environment variable that names the default cluster.

Rules: read at each call, so that a program may set it. Not for: settings of clusters and topics.
"""

from __future__ import annotations

import os

ROOT_VARIABLE = "SPARKLOG_BOOTSTRAP_SERVER"
"""The environment variable that names a cluster's root."""


def default_root() -> str | None:
    """Return the root that the environment names, or None."""
    return os.environ.get(ROOT_VARIABLE, "").strip() or None
