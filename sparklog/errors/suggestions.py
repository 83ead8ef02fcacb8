"""What a misspelled name probably means: for options, configs, arguments, commands and columns alike."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

CUTOFF = 0.75
"""Similarity, of 1, from which a name is probably a misspelling of another: high enough to refuse an option for it."""

_LONGEST_NAME = 100
"""characters that are compared, since that costs the product of the lengths. No known name has as many."""


def nearest_name(word: str, known: Iterable[str]) -> str | None:
    """Return the known name that a word is a misspelling of; None if none is similar. Case does not count, nor whether
    words are separated by dots, underscores or hyphens."""
    import difflib  # only for errors

    names = {_normalize(name): name for name in known}
    nearest = difflib.get_close_matches(_normalize(word[:_LONGEST_NAME]), names, n=1, cutoff=CUTOFF)
    return names[nearest[0]] if nearest else None


def suggest_arguments(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Let a function's TypeError for an unknown keyword argument name the nearest one that it has."""
    known = list(inspect.signature(function).parameters)

    @functools.wraps(function)
    def checked(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        unknown = next((name for name in kwargs if name not in known), None)
        if unknown is not None:
            raise TypeError(
                f"{function.__name__}() got an unexpected keyword argument {unknown!r}{did_you_mean(unknown, known)}"
            )
        return function(*args, **kwargs)

    return checked


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``; did you mean X?`` if a known name is similar, else an empty string."""
    name = nearest_name(word, known)
    return f"; did you mean {name}?" if name else ""


def _normalize(name: str) -> str:
    return name.strip().lower().replace(".", "_").replace("-", "_")
