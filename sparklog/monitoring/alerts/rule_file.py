"""Reads a file of rules (TOML, see docs/alerts.md).

Not for: what it may say (``rules``).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from sparklog.errors import InvalidConfigurationError
from sparklog.monitoring.alerts.rules import RuleBook, read_rules

if sys.version_info >= (3, 11):
    import tomllib
else:
    try:
        import tomli as tomllib
    except ImportError:
        tomllib = None

MAX_FILE_BYTES = 1 << 20


def read_rule_file(path: str, environ: Mapping[str, str] = os.environ) -> RuleBook:
    """Return what a file of rules says. ``environ`` has the secrets that it names.

    Raises InvalidConfigurationError, which names the file, if it cannot be read or anything in it is not valid.
    """
    if tomllib is None:
        raise InvalidConfigurationError("rules need tomli, which this Python lacks: pip install 'sparklog[alerts]'")
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise InvalidConfigurationError(f"it has more than {MAX_FILE_BYTES:,} bytes")
        content = tomllib.loads(data.decode("utf-8-sig"))
        return read_rules(content, environ)
    except OSError as error:
        raise InvalidConfigurationError(f"the rules {path} cannot be read: {error.strerror}", path=path) from error
    except RecursionError:
        raise InvalidConfigurationError(f"the rules {path} are nested too deeply", path=path) from None
    except (InvalidConfigurationError, ValueError) as error:
        raise InvalidConfigurationError(f"invalid rules {path}: {error}", path=path) from error
