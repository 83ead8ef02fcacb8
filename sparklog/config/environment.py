"""What the environment says: the cluster that is meant where nothing names one.

Rules: read when it is asked for, so that a program may set it. Not for: settings of clusters and topics.
"""

from __future__ import annotations

import os

ROOT_VARIABLE = "SPARKLOG_BOOTSTRAP_SERVER"
"""The environment variable that names a cluster's root."""


def default_root() -> str | None:
    """The root that the environment names, None where it names none."""
    return os.environ.get(ROOT_VARIABLE, "").strip() or None
