"""Print the lowest versions that pyproject.toml allows of what the project and some of its extras need, one
``name==version`` a line, as pip takes them (``make test-lowest``).

    python scripts/lowest.py test     the extras to include; those that an extra names are included too

Not for: what the dependencies need themselves; pip chooses that.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
OWN = re.compile(r"sparklog\[(.*)\]")
REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[.*\])?\s*(?:>=|==)\s*([0-9.]+)")


def read_project() -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib  # comes with pytest
    content: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return content


def requirements(project: dict[str, Any], extras: Iterable[str]) -> Iterator[str]:
    """The direct requirements of the project and of these extras."""
    yield from project["dependencies"]
    for extra in extras:
        for requirement in project["optional-dependencies"][extra]:
            own = OWN.fullmatch(requirement)
            if own is None:
                yield requirement
            else:
                yield from requirements(project, own[1].split(","))


def lowest(found: Iterable[str]) -> list[str]:
    """Each requirement at its lowest version. Raises ValueError for one without a lower bound."""
    pins = {}
    for requirement in found:
        bound = REQUIREMENT.match(requirement)
        if bound is None:
            raise ValueError(f"pyproject.toml: no lower bound in {requirement!r}; write {requirement}>=X")
        pins[bound[1]] = bound[2]
    return [f"{name}=={version}" for name, version in sorted(pins.items())]


if __name__ == "__main__":
    print("\n".join(lowest(requirements(read_project(), sys.argv[1:]))))
