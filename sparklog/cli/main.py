"""The command ``sparklog``: runs the given tool and turns errors into a line on stderr and an exit code.

Exit codes: 0 for success, 1 for any failure, including a mistyped flag; 130 after Ctrl-C. A command for which 1 means
something else sets ``FAILURE_EXIT_CODE``; one whose counterpart in Kafka exits with another code sets
``KAFKA_FAILURE_EXIT_CODE``, which applies when ``SPARKLOG_KAFKA_EXIT_CODES`` is set. A command whose exit code reports
its result sets ``OUTPUT_IS_OPTIONAL``: it finishes, with that exit code, even if its output is a closed pipe. Output
that cannot be written for another reason is a failure.

Rules: this module imports nothing slow, so that ``sparklog --help`` is fast. Each tool is imported when it is run;
Spark, pandas and numpy are never imported.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType

from sparklog.cli.arguments.process import OutputError, decode_arguments, guard_streams, silence_output
from sparklog.cli.commands import COMMANDS, load_command
from sparklog.config.environment import DEBUG_VARIABLE, KAFKA_EXIT_CODES_VARIABLE, is_enabled
from sparklog.errors import InvalidConfigurationError, SparklogError

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

`sparklog COMMAND --help` (or `sparklog help COMMAND`) explains a command. `--debug`, or SPARKLOG_DEBUG=1, prints debug
logs and stack traces; `--version` prints the version. SPARKLOG_KAFKA_EXIT_CODES=1, or `--kafka-exit-codes`, selects
the exit codes of Kafka's tools where they differ."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line (default: that of the process) and return the exit code."""
    if argv is None:
        argv = decode_arguments()
        _prepare_process()
    try:
        code = _run_arguments(list(argv))
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader of the pipe has read as much as it wants
        silence_output()
        return 0
    except OutputError as error:
        silence_output()
        print(error, file=sys.stderr)
        return 1


def _run_arguments(arguments: list[str]) -> int:
    try:
        debug, _ = is_enabled(DEBUG_VARIABLE), is_enabled(KAFKA_EXIT_CODES_VARIABLE)
    except InvalidConfigurationError as error:
        print(error.message, file=sys.stderr)
        return 1
    if arguments[:1] == ["--debug"]:
        debug = True
        del arguments[0]
    if arguments[:1] == ["help"] and len(arguments) > 1:  # `help topics` is `topics --help`
        arguments = [arguments[1], "--help"]
    if not arguments or arguments[0] in ("--help", "-h", "help"):
        names = "\n".join(f"  {name:<21}{description}" for name, description in COMMANDS.items())
        print(HELP.format(commands=names))
        return 0 if arguments else 1
    if arguments[0] == "--version":
        from sparklog.cli.arguments.parser import VERSION

        print(VERSION)
        return 0
    if arguments[0] not in COMMANDS:
        return _reject_unknown_command(arguments[0])
    name = arguments.pop(0)
    return _run(load_command(name), name, arguments, debug)


def _reject_unknown_command(name: str) -> int:
    from sparklog.cli.arguments.parser import complain
    from sparklog.errors.suggestions import did_you_mean

    short_name = name.removesuffix(".sh").removeprefix("kafka-")
    hint = f"; did you mean {short_name}?" if short_name in COMMANDS else did_you_mean(name, COMMANDS)
    complain(f"{name!r} is not a command (`sparklog --help` lists them){hint}")
    return 1


def _prepare_process() -> None:
    """Change global state of the process, which only its entry point may do.

    pyarrow imports numpy if it is installed, which takes twice as long as pyarrow itself, and no command needs it. A
    ``None`` in ``sys.modules`` makes that import fail as if numpy were not installed.
    """
    if "numpy" not in sys.modules and "pyarrow" not in sys.modules:
        sys.modules["numpy"] = None  # type: ignore[assignment]
    guard_streams()


def _run(command: ModuleType, name: str, arguments: list[str], debug: bool) -> int:
    from sparklog.cli.arguments import parser

    debug = debug or "--debug" in arguments
    parser.set_logging(debug)
    prefix = getattr(command, "ERROR_PREFIX", "")
    invalid: int = getattr(command, "FAILURE_EXIT_CODE", 1)
    failed = invalid
    if parser.use_kafka_exit_codes() or "--kafka-exit-codes" in arguments:
        failed = getattr(command, "KAFKA_FAILURE_EXIT_CODE", failed)
    try:
        with parser.optional_output(getattr(command, "OUTPUT_IS_OPTIONAL", False)) as output:
            try:
                code: int = command.run(command.parser().parse(arguments))
            except SystemExit as finished:  # --help and --version
                code = finished.code if isinstance(finished.code, int) else 0
            sys.stdout.flush()
        return code or (invalid if getattr(output, "failed", False) else 0)
    except parser.CommandError as error:
        parser.complain(f"{prefix}{error}")
    except parser.UsageError as error:
        parser.complain(str(error))
        parser.complain(f"`sparklog {name} --help` lists the options.")
        return invalid
    except SparklogError as error:
        if debug:
            raise
        parser.complain(f"{prefix}{parser.explain(error)}")
    except BrokenPipeError:
        raise
    except OutputError as error:
        silence_output()
        parser.complain(str(error))
        return invalid
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if debug:
            raise
        what = f"unexpected {type(error).__name__}: {parser.explain(error)}"
        parser.complain(f"{prefix}{what}; `sparklog --debug {name} …` shows where")
        return invalid
    return failed
