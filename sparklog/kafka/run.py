"""Run a program that imports kafka with sparklog in its place, without editing it.

    python -m sparklog.kafka.run --bootstrap-server /data/log program.py ARGUMENTS
    python -m sparklog.kafka.run --bootstrap-server /data/log -m package.module ARGUMENTS

Addresses of brokers in the program stand for that cluster; without the flag, for the one that
SPARKLOG_BOOTSTRAP_SERVER names.

Rules: the program has its own ``sys.argv`` and ``sys.path``, as if Python had started it. ``import kafka`` is not
replaced in processes that it starts. Not for: replacing the import (``shim``).
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections.abc import Sequence

from sparklog.errors import InvalidClientConfigurationError
from sparklog.kafka.shim import install


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program that the arguments name, in this process."""
    parser = argparse.ArgumentParser(
        prog="python -m sparklog.kafka.run", description="Run a program with sparklog in place of kafka-python."
    )
    parser.add_argument(
        "--bootstrap-server",
        metavar="ROOT",
        help="the cluster's root, used even if the program names brokers (default: $SPARKLOG_BOOTSTRAP_SERVER)",
    )
    parser.add_argument("-m", dest="module", action="store_true", help="the program is a module, not a file")
    parser.add_argument("program", help="a file, or with -m a module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the program")
    options = parser.parse_args(arguments)
    if not options.module and not os.path.exists(options.program):
        parser.error(f"there is no file {options.program!r}; to run a module, use -m")
    try:
        install(options.bootstrap_server)
    except InvalidClientConfigurationError as error:
        parser.error(str(error))
    sys.argv = [options.program, *options.arguments]
    if options.module:
        runpy.run_module(options.program, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(options.program))
        runpy.run_path(options.program, run_name="__main__")


if __name__ == "__main__":
    main()
