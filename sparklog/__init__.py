"""sparklog: a distributed log with Kafka's semantics on Spark and shared storage.

    import sparklog

    sparklog.register(spark)
    sparklog.write(df, "/data/log", topic="flights")
    sparklog.read(spark, "/data/log", subscribe="flights")

Rules: importing this module costs a few milliseconds and nothing but the standard library. The names in ``__all__`` are
imported from where they live when they are first used, so that a process that only reads errors never loads Spark.

Not for: code. Whatever is exported here is defined on its own floor.
"""

from __future__ import annotations

import importlib

__version__ = "0.1.0"

TYPE_CHECKING = False  # as type checkers take it; importing typing for it would cost more than all the rest
if TYPE_CHECKING:
    from sparklog import errors
    from sparklog.errors import SparklogError
    from sparklog.spark.api import read, register, write
    from sparklog.spark.stream_batch import write_batch

__all__ = ["SparklogError", "__version__", "errors", "read", "register", "write", "write_batch"]

# name -> (module, attribute); an attribute of None means the module itself
_LAZY: dict[str, tuple[str, str | None]] = {
    "SparklogError": ("sparklog.errors", "SparklogError"),
    "errors": ("sparklog.errors", None),
    "read": ("sparklog.spark.api", "read"),
    "register": ("sparklog.spark.api", "register"),
    "write": ("sparklog.spark.api", "write"),
    "write_batch": ("sparklog.spark.stream_batch", "write_batch"),
}


if not TYPE_CHECKING:  # or else every misspelt name would pass a type checker

    def __getattr__(name):
        try:
            module_name, attribute = _LAZY[name]
        except KeyError:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
        module = importlib.import_module(module_name)
        value = module if attribute is None else getattr(module, attribute)
        globals()[name] = value  # the next use does not come here
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
