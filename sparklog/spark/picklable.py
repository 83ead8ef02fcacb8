"""Pickling that says what is wrong where sparklog is missing.

Spark sends readers, writers and partitions to executors as pickles that name their classes. On an executor without the
package, unpickling fails deep inside Spark with ``ModuleNotFoundError``. A ``Picklable`` object is sent as bytes beside
a small function that is pickled by value, since it claims to live in ``__main__``; so the function runs everywhere, and
where the package is missing it says so and what to do.

Rules: the state of a Portable must be picklable by plain ``pickle``. Not for: anything that is stored.
"""

from __future__ import annotations

import pickle
from typing import Any

from sparklog.spark.stream.process import keep_quiet_when_spark_hangs_up

keep_quiet_when_spark_hangs_up()  # all that Spark sends to its processes is one of these


def _unpack(state: bytes) -> Any:
    # Runs on executors that may lack sparklog: nothing but the standard library here.
    import pickle
    import socket
    import sys

    try:
        kind, attributes = pickle.loads(state)
    except (ImportError, AttributeError) as error:
        raise RuntimeError(
            f"the Spark executor on {socket.gethostname()} ({sys.executable}) lacks sparklog, one of the packages it "
            f"needs, or this version of it: {error}. Install it for the executors' Python (pip install "
            "'sparklog[spark]'); or ship it with the job as --py-files dist/sparklog-<version>-py.zip, where pyarrow, "
            "fsspec, msgspec and google-crc32c are installed already"
        ) from None
    found = object.__new__(kind)
    found.__dict__.update(attributes)
    return found


_unpack.__module__ = "__main__"  # what makes cloudpickle send the function itself instead of its name


class Picklable:
    """Base of what Spark sends to executors. Subclasses keep all their state in ``__dict__``."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (_unpack, (pickle.dumps((type(self), self.__dict__), pickle.HIGHEST_PROTOCOL),))
