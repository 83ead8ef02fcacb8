"""Typed views of stored settings. A value is parsed when it is first read, and once for the same stored settings.

Not for: parsing (``definitions``), which settings exist (``topic_configs``, ``cluster_configs``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar

from sparklog.config.definitions import ConfigDef, ConfigEntry, ConfigValue, unknown_name

Value = TypeVar("Value")


class Setting(Generic[Value]):
    """A property of typed configs: the value of one setting, which is of this type. Errors as ``TypedConfigs.get``."""

    def __init__(self, kind: type[Value], name: str) -> None:
        self._kind = kind
        self._name = name

    def __get__(self, configs: TypedConfigs, owner: type[TypedConfigs]) -> Value:
        return configs.get_as(self._kind, self._name)


@dataclass(frozen=True)
class TypedConfigs(ABC):
    """The effective settings of a topic or cluster, of which some are ``stored``. Immutable, thread-safe, picklable."""

    stored: dict[str, str] = field(default_factory=dict)
    _values: dict[str, ConfigValue] = field(default_factory=dict, init=False, repr=False, compare=False)

    level: ClassVar[str]
    definitions: ClassVar[Mapping[str, ConfigDef]]
    not_settable: ClassVar[Mapping[str, str]]

    def get(self, name: str) -> ConfigValue:
        """Return the typed value of any setting, in the unit of its name; None if it is not set and has no default.
        Raises InvalidConfigurationError for an unknown setting, or an invalid stored value."""
        if name not in self._values:
            self._values[name] = self._parse(self._find_definition(name))
        return self._values[name]

    def get_as(self, kind: type[Value], name: str) -> Value:
        """Return the value of a setting that is of this type. Raises as ``get``."""
        value = self.get(name)
        assert isinstance(value, kind), name
        return value

    def describe(self, everything: bool = False) -> list[ConfigEntry]:
        """Return the entries that ``configs --describe`` prints, by name: those set here, or ``everything``."""
        names = (
            name
            for name, definition in self.definitions.items()
            if name in self.stored or (everything and not definition.internal)
        )
        return [self.explain(name) for name in sorted(names)]

    @abstractmethod
    def explain(self, name: str) -> ConfigEntry:
        """Return a setting's value, its source, and the values it overrides. Raises as ``get``."""

    @abstractmethod
    def _parse(self, definition: ConfigDef) -> ConfigValue: ...

    def _find_definition(self, name: str) -> ConfigDef:
        definition = self.definitions.get(name)
        if definition is None:
            raise unknown_name(name, self.definitions, self.level, self.not_settable)
        return definition
