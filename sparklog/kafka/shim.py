"""``import kafka`` answered by sparklog, for programs and libraries that cannot be edited.

    import sparklog.kafka
    sparklog.kafka.install()            # before anything imports kafka

    import kafka                        # is sparklog.kafka; so is kafka.errors, and every other module

A finder before all others answers ``kafka`` and its modules with those of ``sparklog.kafka``, the same objects under
another name. kafka-python's own programs (``kafka.cli``, ``python -m kafka.admin``, ``kafka.benchmarks``) come from the
installed kafka-python, and use sparklog's clients.

Rules: installing it again changes nothing but the cluster. Not for: other processes; each installs it for itself.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import CodeType, ModuleType

from sparklog.client.config import answer_brokers_with
from sparklog.errors import IllegalStateError

ORIGINAL = "kafka"
PACKAGE = "sparklog.kafka"
PROGRAMS = ("kafka.cli", "kafka.benchmarks", "kafka.protocol.api_key")
"""What is taken from the installed kafka-python: programs over its public interface, and the names they show."""


class _Alias(Loader):
    """Answers a module with another one, which is imported under its own name."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._target)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import has put its own in place

    def get_code(self, name: str) -> CodeType | None:
        """For ``python -m``."""
        spec = importlib.util.find_spec(self._target)
        get_code = getattr(spec.loader if spec else None, "get_code", None)
        code: CodeType | None = None if get_code is None else get_code(self._target)
        return code


class _Finder(MetaPathFinder):
    """Finds ``kafka`` and its modules."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if _is_program(fullname):
            return _installed(fullname)
        if not _is_answered(fullname):
            return None
        name = PACKAGE + fullname.removeprefix(ORIGINAL)
        spec = importlib.util.find_spec(name)
        if spec is None:
            raise ModuleNotFoundError(
                f"No module named {fullname!r} in sparklog.kafka, which answers import kafka here: what only makes "
                "sense with servers is not in it",
                name=fullname,
            )
        return ModuleSpec(fullname, _Alias(name), is_package=spec.submodule_search_locations is not None)


def _is_answered(name: str) -> bool:
    return (name == ORIGINAL or name.startswith(f"{ORIGINAL}.")) and not _is_program(name)


def _is_program(name: str) -> bool:
    if name.startswith(f"{ORIGINAL}.") and name.endswith(".__main__"):
        return True
    return any(name == one or name.startswith(f"{one}.") for one in PROGRAMS)


def _installed(name: str) -> ModuleSpec:
    """A module of the installed kafka-python, under its own name. Raises ModuleNotFoundError."""
    parts = name.split(".")
    spec = PathFinder.find_spec(parts[0])
    for count in range(2, len(parts) + 1):
        if spec is None or spec.submodule_search_locations is None:
            break
        spec = PathFinder.find_spec(".".join(parts[:count]), spec.submodule_search_locations)
    if spec is None or spec.name != name:
        raise ModuleNotFoundError(
            f"No module named {name!r}: it comes from the distribution kafka-python, version 3, which is not installed",
            name=name,
        )
    return spec


_FINDER = _Finder()


def install(root: str | None = None) -> ModuleType:
    """Answer ``import kafka`` with ``sparklog.kafka`` in this process, and return that.

    Addresses of Kafka's brokers, such as ``bootstrap_servers="kafka-1:9092"``, stand for the cluster at ``root`` from
    now on, and so does leaving ``bootstrap_servers`` out; without a root for the cluster that
    SPARKLOG_BOOTSTRAP_SERVER names, and where it names none they are refused.

    Raises:
        IllegalStateError: another kafka was imported before, so that some would use it and others sparklog.
        InvalidClientConfigurationError: ``root`` is itself an address of brokers.
    """
    package = importlib.import_module(PACKAGE)
    for name, module in sorted(sys.modules.items(), key=lambda item: item[0]):
        if _is_answered(name) and sys.modules.get(PACKAGE + name.removeprefix(ORIGINAL)) is not module:
            origin = getattr(module, "__file__", None) or "an unknown place"
            raise IllegalStateError(
                f"{name} was imported already, from {origin}; call sparklog.kafka.install() before anything imports it"
            )
    answer_brokers_with(root)
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    return package
