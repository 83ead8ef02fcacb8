"""Functions of the user's that a command line names.

Rules: a function of a file travels to the executors with its code; one of a module is imported there.
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


def named(text: str) -> Callable[..., Any]:
    """The function that ``FILE.py:FUNCTION`` or ``MODULE:FUNCTION`` names. Raises InvalidOptionError."""
    place, colon, name = text.rpartition(":")
    if not colon or not place or not name:
        raise InvalidOptionError(f"{text!r} names no function; write FILE.py:FUNCTION or MODULE:FUNCTION")
    module = _file(Path(place)) if place.endswith(".py") else _module(place)
    found = getattr(module, name, None)
    if not callable(found):
        known = ", ".join(one for one, value in vars(module).items() if callable(value) and not one.startswith("_"))
        raise InvalidOptionError(f"{place} has no function {name!r}; it has {known or 'none'}")
    return found  # type: ignore[no-any-return]


def _file(path: Path) -> ModuleType:
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


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InvalidOptionError(
            f"module {name!r} cannot be imported: {error}; install it here and on the executors, send it along with "
            "--py-files, or name a file as FILE.py:FUNCTION"
        ) from error
