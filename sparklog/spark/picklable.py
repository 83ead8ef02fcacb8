"""Pickle objects so that an executor without sparklog fails with a helpful error.

Spark sends readers, writers and partitions to executors as pickles that name their classes. On an executor without the
package, unpickling fails deep inside Spark with ``ModuleNotFoundError``. A ``Picklable`` object is sent as bytes, with
a small function that is pickled by value because its module is set to ``__main__``. So the function runs everywhere; if
the package is missing, it raises an error that says so and what to do.

Rules: the state of a ``Picklable`` must be picklable by plain ``pickle``. Not for: stored objects.
"""

from __future__ import annotations

import pickle
from typing import Any, ClassVar

from sparklog.spark.stream.worker_processes import freeze_loaded_objects, keep_quiet_when_spark_hangs_up

keep_quiet_when_spark_hangs_up()  # every process that Spark sends sparklog's objects to imports this module


def _unpack(state: bytes) -> Any:
    # Runs on executors that may lack sparklog: standard library only.
    import pickle
    import socket
    import sys

    try:
        kind, attributes = pickle.loads(state)
        kind.arrived()
    except (ImportError, AttributeError) as error:
        raise RuntimeError(
            f"the Spark executor on {socket.gethostname()} ({sys.executable}) lacks sparklog, one of the packages it "
            f"needs, or this version of it: {error}. Install it for the executors' Python (pip install "
            "'sparklog[spark]'); or ship it with the job as --py-files dist/sparklog-<version>-py.zip, where pyarrow, "
            "fsspec, msgspec and google-crc32c are installed already"
        ) from None
    unpacked = object.__new__(kind)
    unpacked.__dict__.update(attributes)
    return unpacked


_unpack.__module__ = "__main__"  # makes cloudpickle send the function itself instead of its name


class Picklable:
    """Base class of objects that Spark sends to executors. Subclasses keep all their state in ``__dict__``.

    The attributes ``left_out`` stay in this process; a copy has None instead.
    """

    left_out: ClassVar[tuple[str, ...]] = ()

    @staticmethod
    def arrived() -> None:
        """Tune the process that an object was sent to."""
        freeze_loaded_objects()

    def __reduce__(self) -> tuple[Any, ...]:
        attributes = {**self.__dict__, **dict.fromkeys(self.left_out)}
        return (_unpack, (pickle.dumps((type(self), attributes), pickle.HIGHEST_PROTOCOL),))
