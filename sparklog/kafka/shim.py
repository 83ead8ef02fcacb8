"""Serve ``import kafka`` with sparklog, for programs and libraries that cannot be edited.

    import sparklog.kafka
    sparklog.kafka.install()            # before anything imports kafka

    import kafka                        # is sparklog.kafka; so is kafka.errors, and every other module

A finder ahead of all others resolves ``kafka`` and its modules to those of ``sparklog.kafka``: the same objects under
another name. kafka-python's own programs (``kafka.cli``, ``python -m kafka.admin``, ``kafka.benchmarks``) are taken
from the installed kafka-python, and use sparklog's clients.

Rules: installing it again changes only the cluster. Not for: other processes; each must install it.
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
"""Modules taken from the installed kafka-python: programs that use its public interface, and names they show."""


class _Alias(Loader):
    """Loads a module by importing another one, which keeps its own name."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._target)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import system has replaced it

    def get_code(self, name: str) -> CodeType | None:
        """Return the module's code, for ``python -m``."""
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
            return _find_installed(fullname)
        if not _is_replaced(fullname):
            return None
        name = PACKAGE + fullname.removeprefix(ORIGINAL)
        spec = importlib.util.find_spec(name)
        if spec is None:
            raise ModuleNotFoundError(
                f"No module named {fullname!r} in sparklog.kafka, which replaces kafka-python in this process: it has "
                "no modules that only make sense with servers",
                name=fullname,
            )
        return ModuleSpec(fullname, _Alias(name), is_package=spec.submodule_search_locations is not None)


def _is_replaced(name: str) -> bool:
    return (name == ORIGINAL or name.startswith(f"{ORIGINAL}.")) and not _is_program(name)


def _is_program(name: str) -> bool:
    if name.startswith(f"{ORIGINAL}.") and name.endswith(".__main__"):
        return True
    return any(name == program or name.startswith(f"{program}.") for program in PROGRAMS)


def _find_installed(name: str) -> ModuleSpec:
    """Return the spec of a module of the installed kafka-python, under its own name. Raises ModuleNotFoundError."""
    parts = name.split(".")
    spec = PathFinder.find_spec(parts[0])
    for count in range(2, len(parts) + 1):
        if spec is None or spec.submodule_search_locations is None:
            break
        spec = PathFinder.find_spec(".".join(parts[:count]), spec.submodule_search_locations)
    if spec is None or spec.name != name:
        raise ModuleNotFoundError(
            f"No module named {name!r}: it is part of kafka-python 3, which is not installed",
            name=name,
        )
    return spec


_FINDER = _Finder()


def install(root: str | None = None) -> ModuleType:
    """Serve ``import kafka`` with ``sparklog.kafka`` in this process; return that package.

    From now on, addresses of Kafka's brokers, such as ``bootstrap_servers="kafka-1:9092"``, stand for the cluster at
    ``root``, and so does no ``bootstrap_servers``. Without a root they stand for the cluster that
    SPARKLOG_BOOTSTRAP_SERVER names; if it names none, they are refused.

    Raises:
        IllegalStateError: another kafka was already imported, so that both would be in use.
        InvalidClientConfigurationError: ``root`` is itself an address of brokers.
    """
    package = importlib.import_module(PACKAGE)
    for name, module in sorted(sys.modules.items(), key=lambda item: item[0]):
        if _is_replaced(name) and sys.modules.get(PACKAGE + name.removeprefix(ORIGINAL)) is not module:
            origin = getattr(module, "__file__", None) or "an unknown file"
            raise IllegalStateError(
                f"{name} was already imported, from {origin}; call sparklog.kafka.install() before anything imports it"
            )
    answer_brokers_with(root)
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    return package
