"""Load user functions that are named on a command line.

Rules: a function of a file is sent to the executors with its code; one of a module is imported there.
Not for: partitioners (``sink.routing``).
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from pyspark import cloudpickle

from sparklog.errors import InvalidOptionError


def load_function(text: str) -> Callable[..., Any]:
    """Return the function that ``FILE.py:FUNCTION`` or ``MODULE:FUNCTION`` names. Raises InvalidOptionError."""
    source, colon, name = text.rpartition(":")
    if not colon or not source or not name:
        raise InvalidOptionError(f"{text!r} names no function; write FILE.py:FUNCTION or MODULE:FUNCTION")
    module = _load_file(Path(source)) if source.endswith(".py") else _import_module(source)
    function = getattr(module, name, None)
    if not callable(function):
        members = vars(module).items()
        available = ", ".join(member for member, value in members if callable(value) and not member.startswith("_"))
        raise InvalidOptionError(f"{source} has no function {name!r}; it has {available or 'none'}")
    return function  # type: ignore[no-any-return]


def _load_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"sparklog_user_{path.stem}", path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise InvalidOptionError(f"{path} is not a file; name one that exists, as FILE.py:FUNCTION")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[spec.name]
        raise InvalidOptionError(f"{path} cannot be loaded: {type(error).__name__}: {error}") from error
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return module


def _import_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InvalidOptionError(
            f"module {name!r} cannot be imported: {error}; install it here and on the executors, ship it with "
            "--py-files, or name a file as FILE.py:FUNCTION"
        ) from error
