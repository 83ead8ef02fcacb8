"""Storage behind one small interface: the only part of sparklog that knows file systems and fsspec; see ``base``."""

from sparklog.store.base import InputFile, ObjectInfo, OutputFile, Store
from sparklog.store.open import open_store

__all__ = ["InputFile", "ObjectInfo", "OutputFile", "Store", "open_store"]
