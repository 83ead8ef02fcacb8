"""The command ``sparklog``: finds the tool that is asked for and turns errors into a line on stderr and an exit code.

Exit codes: 0 when it worked, 1 for anything that did not, a mistyped flag included; 130 after Ctrl-C. A command whose 1
means something else says so by ``FAILURE_EXIT_CODE``; one whose model in Kafka exits otherwise by
``KAFKA_FAILURE_EXIT_CODE``, which holds where ``SPARKLOG_KAFKA_EXIT_CODES`` is set. One whose exit code says what it
found has ``OUTPUT_IS_OPTIONAL``: it does its work, and says so, also where nobody reads what it prints.

Rules: this module imports nothing that costs time, so that ``sparklog --help`` is fast; each tool is imported when it
is asked for, and neither Spark, pandas nor numpy ever is.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from types import ModuleType

from sparklog.cli.commands import COMMANDS, load_command

HELP = """\
usage: sparklog COMMAND [OPTIONS]

Work with a cluster: a log with Kafka's semantics in a folder or a bucket. The commands are Kafka's tools, with the
same flags, where --bootstrap-server takes the cluster's root: a path or a URL. It defaults to the environment variable
SPARKLOG_BOOTSTRAP_SERVER.

Commands:
{commands}

Example:
  sparklog cluster create --bootstrap-server /data/log
  sparklog topics --bootstrap-server /data/log --create --topic orders --partitions 8

`sparklog COMMAND --help` (or `sparklog help COMMAND`) explains a command. `--debug`, or SPARKLOG_DEBUG=1, shows what
happens and where an error comes from; `--version` prints the version. SPARKLOG_KAFKA_EXIT_CODES=1, or
`--kafka-exit-codes`, gives the exit codes of Kafka's tools where they differ."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line, the process's own by default, and return the exit code."""
    if argv is None:
        _prepare_process()
        argv = sys.argv[1:]
    arguments = list(argv)
    debug = os.environ.get("SPARKLOG_DEBUG", "") not in ("", "0", "false")
    if arguments[:1] == ["--debug"]:
        debug = True
        del arguments[0]
    if arguments[:1] == ["help"] and len(arguments) > 1:  # `help topics` is `topics --help`
        arguments = [arguments[1], "--help"]
    if not arguments or arguments[0] in ("--help", "-h", "help"):
        print(_help())
        return 0 if arguments else 1
    if arguments[0] == "--version":
        from sparklog import __version__

        print(f"{__version__} (sparklog)")
        return 0
    if arguments[0] not in COMMANDS:
        return _unknown(arguments[0])
    name = arguments.pop(0)
    return _run(load_command(name), name, arguments, debug)


def _help() -> str:
    return HELP.format(commands="\n".join(f"  {name:<21}{what}" for name, what in COMMANDS.items()))


def _unknown(name: str) -> int:
    from sparklog.cli.arguments.parser import complain, suggestion

    kafkas = name.removesuffix(".sh").removeprefix("kafka-")
    meant = f"; did you mean {kafkas}?" if kafkas in COMMANDS else suggestion(name, COMMANDS, cutoff=0.7)
    complain(f"{name!r} is not a command (`sparklog --help` lists them){meant}")
    return 1


def _prepare_process() -> None:
    """What only the process's own start may change.

    pyarrow imports numpy where it finds it, which takes twice as long as pyarrow itself, and no command needs it. A
    ``None`` in ``sys.modules`` makes Python's import say that there is no such module.
    """
    if "numpy" not in sys.modules and "pyarrow" not in sys.modules:
        sys.modules["numpy"] = None  # type: ignore[assignment]
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal that cannot show a character gets its number instead
            stream.reconfigure(errors="backslashreplace")


def _open_closed_streams() -> None:
    """What was closed (``>&-``, ``<&-``) leads nowhere from here on, so that no file of the log gets its descriptor.

    In ascending order, since a file gets the lowest descriptor that is free.
    """
    for descriptor, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDONLY if mode == "r" else os.O_WRONLY)
        if getattr(sys, name) is None:
            setattr(sys, name, io.TextIOWrapper(io.FileIO(os.devnull, mode), encoding="utf-8"))


def _run(command: ModuleType, name: str, arguments: list[str], debug: bool) -> int:
    from sparklog.cli.arguments.parser import (
        UsageError,
        complain,
        explained,
        flush_output,
        kafkas_exit_codes,
        optional_output,
        set_logging,
        silence_output,
    )
    from sparklog.errors import SparklogError

    debug = debug or "--debug" in arguments
    set_logging(debug)
    prefix = getattr(command, "ERROR_PREFIX", "")
    failed = int(getattr(command, "FAILURE_EXIT_CODE", 1))
    if kafkas_exit_codes() or "--kafka-exit-codes" in arguments:
        failed = int(getattr(command, "KAFKA_FAILURE_EXIT_CODE", failed))
    try:
        with optional_output(getattr(command, "OUTPUT_IS_OPTIONAL", False)):
            code: int = command.run(command.parser().parse(arguments))
            flush_output()
        return code
    except SystemExit as finished:  # --help and --version
        return finished.code if isinstance(finished.code, int) else 0
    except UsageError as error:
        complain(f"{prefix if error.prefixed else ''}{error}")
        if not error.prefixed:
            complain(f"`sparklog {name} --help` lists the options.")
            return int(getattr(command, "FAILURE_EXIT_CODE", 1))
    except SparklogError as error:
        if debug:
            raise
        complain(f"{prefix}{explained(error)}")
    except BrokenPipeError:  # whoever read the output has seen enough
        silence_output()
        return 0
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if debug:
            raise
        complain(
            f"{prefix}unexpected {type(error).__name__}: {explained(error)}; `sparklog --debug {name} …` shows where"
        )
        return int(getattr(command, "FAILURE_EXIT_CODE", 1))
    return failed
