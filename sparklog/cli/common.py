"""What the commands share: the option parser, the connection, and how they complain.

Rules: flags are spelled and abbreviated as in Kafka's tools, that is, not abbreviated at all. A flag of Kafka's that
has no meaning here is accepted, noted in the help, and logged at debug level when it is used.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from sparklog.config.environment import ROOT_VARIABLE, default_root
from sparklog.types import printable

if TYPE_CHECKING:
    from sparklog.coordinator import Coordinator

logger = logging.getLogger(__name__)

STORAGE_PROPERTY_PREFIX = "storage."
"""In a --command-config file, what follows it is the name of a storage option."""


class UsageError(Exception):
    """The command line itself is wrong. ``prefixed`` ones are said as the command says its failures."""

    def __init__(self, message: str, prefixed: bool = False) -> None:
        super().__init__(message)
        self.prefixed = prefixed


def complain(message: str) -> None:
    """One line on stderr, also where the message holds control characters of the caller's."""
    print(printable(message.replace("\n", " ")), file=sys.stderr)


def suggestion(word: str, known: Iterable[str]) -> str:
    """``; did you mean X?`` where a known word is close, else nothing."""
    import difflib

    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def set_logging(debug: bool) -> None:
    """Warnings, or with ``debug`` everything of sparklog's, on stderr."""
    if debug:
        logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
        logging.getLogger("sparklog").setLevel(logging.DEBUG)


def flush_output() -> None:
    sys.stdout.flush()


def silence_output() -> None:
    """Send what is still buffered for a closed pipe to nowhere, so that the interpreter's exit does not complain."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # where stdout is no real file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class CommandParser(argparse.ArgumentParser):
    """argparse with Kafka's manners: no abbreviations, repeated flags of actions are fine, errors exit with 1."""

    def __init__(self, command: str, description: str, example: str, usage: str = "[OPTIONS]") -> None:
        super().__init__(
            prog=f"sparklog {command}",
            usage=f"sparklog {command} {usage}",
            description=description,
            epilog=f"Example:\n  {example}",
            formatter_class=_HelpFormatter,
            allow_abbrev=False,
            add_help=False,
        )
        self._without_effect: dict[str, str] = {}
        self._quiet_group: argparse._ArgumentGroup | None = None
        self.add_argument("--help", action="help", help="print this help")
        self.add_argument("--version", action=_Version, help="print the version")
        self.add_argument("--debug", action="store_true", help="show what happens, and where an error comes from")

    def add_connection(self) -> None:
        """The flags that say which cluster, and how to reach its storage."""
        self.add_argument(
            "--bootstrap-server",
            metavar="ROOT",
            help=f"the cluster's root: a path or a URL such as s3://bucket/log (default: ${ROOT_VARIABLE})",
        )
        self.add_argument(
            "--storage-option",
            metavar="NAME=VALUE",
            action="append",
            default=[],
            help="an option for the storage's client, repeatable; true, false, {…} and […] are read as JSON",
        )
        self.add_argument(
            "--command-config",
            metavar="FILE",
            help=f"a properties file with bootstrap.servers and {STORAGE_PROPERTY_PREFIX}NAME for storage options",
        )

    def add_without_effect(self, *flags: str, metavar: str | None = None) -> None:
        """Flags of Kafka's that change nothing here; with ``metavar`` they take a value."""
        if self._quiet_group is None:
            self._quiet_group = self.add_argument_group("Accepted for Kafka's scripts, without effect here")
        for flag in flags:
            if metavar is None:
                action = self._quiet_group.add_argument(flag, action="store_true")
            else:
                action = self._quiet_group.add_argument(flag, metavar=metavar, action="append")
            self._without_effect[action.dest] = flag

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse, or raise UsageError with a word on what was probably meant."""
        options, unknown = self.parse_known_args(arguments)
        if unknown:
            first = unknown[0].partition("=")[0]
            if not first.startswith("-"):
                raise UsageError(f"{first!r} does not belong to any option")
            raise UsageError(f"{first} is not a recognized option{suggestion(first, self._option_string_actions)}")
        for name, flag in self._without_effect.items():
            if getattr(options, name):
                logger.debug("%s has no effect here", flag)
        return options

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


class _Version(argparse.Action):
    """``--version``, imported only then."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(nargs=0, **settings)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from sparklog import __version__

        print(f"sparklog {__version__}")
        parser.exit(0)


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Wide enough for the longest flags of Kafka's."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=34, width=120)


def require(options: argparse.Namespace, *names: str) -> None:
    """Raise as Kafka's CommandLineUtils does where one of these options is missing."""
    for name in names:
        if getattr(options, name.replace("-", "_")) in (None, False, []):
            raise UsageError(f'Missing required argument "[{name}]"')


def refuse_together(options: argparse.Namespace, name: str, others: Iterable[str], note: str = "") -> None:
    """Raise as Kafka's CommandLineUtils does where an option meets one that it cannot be used with."""
    if not given(options, name):
        return
    for other in others:
        if given(options, other):
            raise UsageError(f'Option "[{name}]" can\'t be used with option "[{other}]"{note}')


def given(options: argparse.Namespace, name: str) -> bool:
    return getattr(options, name.replace("-", "_")) not in (None, False, [])


# -- properties


def parse_pairs(pairs: Sequence[str], flag: str) -> dict[str, str]:
    """``name=value`` arguments as a dict; a value may hold ``=``. Raises UsageError."""
    parsed: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"{flag} {pair!r} is not of the form name=value")
        parsed[name.strip()] = value
    return parsed


def read_properties_file(path: str, flag: str) -> dict[str, str]:
    """A .properties file that an option names. Raises UsageError where it cannot be read."""
    from sparklog.config.properties import read_properties
    from sparklog.errors import SparklogError

    try:
        return dict(read_properties(path))
    except (OSError, UnicodeDecodeError, SparklogError) as error:
        raise UsageError(f"{flag}: {path} cannot be read: {error}") from error


# -- connection


def bootstrap_server(options: argparse.Namespace) -> tuple[str, dict[str, object]]:
    """The cluster's root and its storage options: flags first, then the config file, then the environment."""
    properties: dict[str, str] = {}
    if options.command_config:
        properties = read_properties_file(options.command_config, "--command-config")
    root = options.bootstrap_server or properties.get("bootstrap.servers") or default_root()
    if not root:
        raise UsageError(
            f"--bootstrap-server must be specified: the cluster's root, a path or URL (or set {ROOT_VARIABLE})"
        )
    return root, storage_options(options, properties)


def storage_options(options: argparse.Namespace, properties: Mapping[str, str]) -> dict[str, object]:
    """Options for the storage's client: ``--storage-option``, then those of the config file."""
    prefix = STORAGE_PROPERTY_PREFIX
    texts = {name[len(prefix) :]: value for name, value in properties.items() if name.startswith(prefix)}
    texts.update(parse_pairs(options.storage_option, "--storage-option"))
    return {name: _storage_value(name, value) for name, value in texts.items()}


def _storage_value(name: str, text: str) -> object:
    """Text, except for what can only be JSON; numbers stay text, since keys and secrets may be all digits."""
    if text not in ("true", "false", "null") and not text.startswith(("{", "[")):
        return text
    import json

    try:
        return json.loads(text)
    except ValueError as error:
        raise UsageError(f"--storage-option {name}: {text!r} is not JSON: {error}") from error


def connect(options: argparse.Namespace) -> Coordinator:
    """Open the cluster that the options name."""
    root, storage_options = bootstrap_server(options)
    from sparklog.coordinator import open_cluster

    return open_cluster(root, storage_options)
