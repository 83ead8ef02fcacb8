"""Shared by all commands: the option parser, the connection to the cluster, and error output.

Rules: flags are spelled as in Kafka's tools and, as there, cannot be abbreviated. A flag that takes one value is
refused when given twice. A flag of Kafka's without meaning here is accepted, marked in the help, and logged at debug
level when used; a deprecated one is accepted with a warning.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import math
import os
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from sparklog import __version__
from sparklog.cli.arguments.process import OutputError, not_text, silence_output
from sparklog.config.environment import KAFKA_EXIT_CODES_VARIABLE, ROOT_VARIABLE, default_root, is_enabled
from sparklog.config.kafka_addresses import are_brokers
from sparklog.errors import SparklogError
from sparklog.errors.suggestions import did_you_mean
from sparklog.types import printable

if TYPE_CHECKING:
    from sparklog.client.admin.client import AdminClient
    from sparklog.coordinator import Coordinator

logger = logging.getLogger(__name__)

VERSION = f"{__version__} (sparklog)"

STORAGE_PROPERTY_PREFIX = "storage."

_UNKNOWN_ARGUMENT = re.compile(r"(?:TypeError: )?[\w.]+\(\) got an unexpected keyword argument '(\w+)'")

_OF_BYTES = frozenset(("FILE", "FILES", "CONFIG-FILE", "ROOT", "formatter_property", "reader_property"))
"""What an option takes (as in its help), or its name, if it may have bytes that are not UTF-8."""

_OTHER_NAMES = {
    "--broker-list": "--bootstrap-server",
    "--zookeeper": "--bootstrap-server",
    "--whitelist": "--include",
    "--group-id": "--group",
}
"""Names of an option in older versions of Kafka's tools, or in other tools of Kafka."""


class UsageError(Exception):
    """The command line itself is invalid."""


class CommandError(UsageError):
    """The options are valid, but what they ask for is refused: printed like the command's other failures."""


def complain(message: str) -> None:
    """Print one line on stderr, with line ends and control characters of the message escaped or replaced."""
    print(printable(message.replace("\n", " ")), file=sys.stderr)


def say(message: str) -> None:
    """Print one line on standard output, with control characters of the message escaped."""
    print(printable(message))


def complain_of(problems: Mapping[int, str | None]) -> None:
    """Print a line on standard error for each broker that did not answer."""
    for broker, problem in problems.items():
        if problem is not None:
            complain(f"broker {broker} did not answer: {problem}")


def explain(error: Exception) -> str:
    """Return the error's message; Python's TypeError for an unknown storage option is reworded."""
    message = str(error)
    unknown = _UNKNOWN_ARGUMENT.search(message)
    if unknown is None:
        return message
    return (
        f"{message[: unknown.start()]}the storage client has no option {unknown.group(1)!r}: correct "
        "--storage-option, or storage.NAME in the file of --command-config"
    )


def join(items: Iterable[object]) -> str:
    return ",".join(map(str, items))


def duplicates(items: Iterable[Any]) -> list[Any]:
    """Return the items that occur more than once, sorted."""
    return sorted(item for item, count in Counter(items).items() if count > 1)


def plural_s(number: int) -> str:
    return "" if number == 1 else "s"


def set_logging(debug: bool) -> None:
    """Log to stderr: warnings, or with ``debug`` everything that sparklog logs."""
    if debug:
        logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
        logging.getLogger("sparklog").setLevel(logging.DEBUG)


def use_kafka_exit_codes(options: argparse.Namespace | None = None) -> bool:
    """Whether ``--kafka-exit-codes`` or its environment variable selects Kafka's exit codes where they differ."""
    return getattr(options, "kafka_exit_codes", False) or is_enabled(KAFKA_EXIT_CODES_VARIABLE)


def failure_code(options: argparse.Namespace) -> int:
    """Return the exit code of a command that failed in whole or in part: 1, or 0 as Kafka's tool."""
    return 0 if use_kafka_exit_codes(options) else 1


class _OptionalOutput:
    """Standard output that discards what it does not take: the reader has closed the pipe, or the disk is full."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.failed = False

    def write(self, text: str) -> int:
        with self._losing_output():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with self._losing_output():
            self._stream.flush()

    @contextlib.contextmanager
    def _losing_output(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            silence_output()
        except OutputError as error:
            self.failed = True
            silence_output()
            complain(str(error))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def optional_output(enabled: bool) -> contextlib.AbstractContextManager[object]:
    """If ``enabled``, output that cannot be written is lost, and does not end the block. Yields what stands for
    standard output then, whose ``failed`` says whether it was lost for another reason than a closed pipe."""
    return contextlib.redirect_stdout(_OptionalOutput(sys.stdout)) if enabled else contextlib.nullcontext()


def whole_number(text: str) -> int:
    """Return the number that a text states in digits: Python's int takes ``1_0`` and digits of other scripts, too.
    Raises ValueError, which argparse reports."""
    if not re.fullmatch(r"\s*[+-]?[0-9]+\s*", text):
        raise ValueError(text)
    return int(text)


whole_number.__name__ = "int"  # as argparse names the type in its message


class _Options(argparse._ActionsContainer):
    def add_switch(self, flag: str, help: str) -> None:
        self.add_argument(flag, action="store_true", help=help)

    def add_value(self, flag: str, metavar: str, help: str, **settings: Any) -> None:
        self.add_argument(flag, metavar=metavar, help=help, **settings)

    def add_number(self, flag: str, metavar: str, help: str, **settings: Any) -> None:
        self.add_argument(flag, metavar=metavar, help=help, type=whole_number, **settings)

    def add_values(self, flag: str, metavar: str, help: str) -> None:
        """Add a repeatable option, an empty list by default."""
        self.add_argument(flag, metavar=metavar, help=help, action="append", default=[])


class _OptionGroup(_Options, argparse._ArgumentGroup):
    """Options below a title of their own in the help."""


class CommandParser(_Options, argparse.ArgumentParser):
    """argparse with the conventions of Kafka's tools: no abbreviations, no repeated single-value options, errors exit
    with 1. Unless ``connects`` is false it has the options that name the cluster and those of its storage."""

    def __init__(
        self, command: str, description: str, example: str, usage: str = "[OPTIONS]", connects: bool = True
    ) -> None:
        super().__init__(
            prog=f"sparklog {command}",
            usage=f"sparklog {command} {usage}",
            description=description,
            epilog=f"Example:\n  {example}",
            formatter_class=_HelpFormatter,
            allow_abbrev=False,
            add_help=False,
        )
        self.command = command
        self.register("action", None, _StoreOnce)
        self.register("action", "store", _StoreOnce)
        self._without_effect: dict[str, str] = {}
        self._deprecated: dict[str, str] = {}
        self._quiet_group: argparse._ArgumentGroup | None = None
        self.actions: tuple[str, ...] = ()
        """The values of the first argument, for a command with actions."""
        self.add_argument("-h", "--help", action="help", help="print this help")
        self.add_argument("--version", action="version", version=VERSION, help="print the version")
        self.add_switch("--debug", "print debug logs and stack traces")
        self.add_switch("--kafka-exit-codes", argparse.SUPPRESS)
        if connects:
            root = f"the cluster's root: a path or a URL such as s3://bucket/log (default: ${ROOT_VARIABLE})"
            option = "an option of the storage client, repeatable; true, false, {…} and […] are parsed as JSON"
            file = f"a properties file with bootstrap.servers and {STORAGE_PROPERTY_PREFIX}NAME for storage options"
            self.add_value("--bootstrap-server", "ROOT", root)
            self.add_values("--storage-option", "NAME=VALUE", option)
            self.add_value("--command-config", "FILE", file)

    def add_group(self, title: str) -> _OptionGroup:
        group = _OptionGroup(self, title)
        self._action_groups.append(group)
        return group

    def add_actions(self, names: Iterable[str]) -> None:
        """Add a first argument, the action, as ``options.action``; the command validates it."""
        self.add_argument("action", nargs="?", help=argparse.SUPPRESS)
        self.actions = tuple(names)

    def optional_actions(self) -> list[argparse.Action]:
        """Return argparse's description of each option, in the order of the help."""
        return [action for action in self._actions if action.option_strings]

    def add_controller(self) -> None:
        """Add Kafka's flag for controllers, which ``bootstrap_server`` refuses and names the flag to use."""
        self.add_value("--bootstrap-controller", "NAME", "refused: --bootstrap-server takes the root")

    def add_without_effect(self, *flags: str, metavar: str | None = None, type: type = str) -> None:
        """Add flags of Kafka's that have no effect here; with ``metavar`` they take a value of this type."""
        if self._quiet_group is None:
            self._quiet_group = self.add_argument_group("Accepted for Kafka's scripts, without effect here")
        settings: dict[str, Any] = {"metavar": metavar, "type": type} if metavar else {"action": "store_true"}
        for flag in flags:
            action = self._quiet_group.add_argument(flag, **settings)
            self._without_effect[action.dest] = flag

    def add_deprecated(self, flag: str, use: str, **settings: Any) -> None:
        """Add an older name of the option ``use``: accepted with a warning, and refused together with ``use`` unless it
        has its own ``dest``."""
        settings.setdefault("dest", self._option_string_actions[use].dest)
        self.add_argument(flag, help=f"deprecated: {use}", **settings)
        self._deprecated[flag] = use

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        used = {argument.partition("=")[0] for argument in arguments}
        for flag, use in self._deprecated.items():
            same = self._option_string_actions[flag].dest == self._option_string_actions[use].dest
            if same and flag in used and use in used:
                raise UsageError(f"Options {flag} and {use} cannot be specified together.")
        options, unknown = self.parse_known_args(arguments)
        if unknown:
            raise UsageError(self._describe_unknown(unknown[0], options))
        self._check_text(options)
        for flag, use in self._deprecated.items():
            if flag in used:
                complain(f"Warning: {flag} is deprecated. Use {use} instead.")
        for name, flag in self._without_effect.items():
            if given(options, name):
                logger.debug("%s has no effect here", flag)
        return options

    def _check_text(self, options: argparse.Namespace) -> None:
        """Raise UsageError for an argument that is not text in UTF-8, but a path or a property with a separator, whose
        bytes count."""
        for action in self._actions:
            if action.metavar in _OF_BYTES or action.dest in _OF_BYTES:
                continue
            value = getattr(options, action.dest, None)
            for text in value if isinstance(value, list) else [value]:
                if isinstance(text, str) and (byte := not_text(text)):
                    name = action.option_strings[0] if action.option_strings else action.dest
                    raise UsageError(f"{name} {text!a}: the byte {byte} is not UTF-8; give it in that encoding")

    def _describe_unknown(self, argument: str, options: argparse.Namespace) -> str:
        flag = argument.partition("=")[0]
        known = self._option_string_actions
        if not flag.startswith("-"):
            for option in ("--topic", "--group"):
                if option in known and not getattr(options, known[option].dest):
                    return f"{flag!r} does not belong to any option; did you mean {option} {flag}?"
            return f"{flag!r} does not belong to any option"
        other = _OTHER_NAMES.get(flag)
        hint = f"; did you mean {other}?" if other in known else did_you_mean(flag, known)
        return f"{flag} is not a recognized option{hint}"

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


class _StoreOnce(argparse.Action):
    """Store the single value of an option; a second one is refused, since either could be the intended one."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        given = namespace.__dict__.setdefault("_given", set())
        if option is not None and self.dest in given:
            name = option.lstrip("-")
            raise UsageError(f"Found multiple arguments for option {name}, but you asked for only one")
        given.add(self.dest)
        setattr(namespace, self.dest, values)


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Makes the columns wide enough for Kafka's longest flags."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=34, width=120)

    def _get_help_string(self, action: argparse.Action) -> str | None:
        """Mark every repeatable option as such."""
        if not isinstance(action, argparse._AppendAction) or "repeat" in (action.help or ""):
            return action.help
        return f"{action.help}; repeatable"


def require_action(action: str | None, known: Collection[str], listed: str = "") -> None:
    """Raise UsageError, with a suggestion, unless this is a known action; ``listed`` names those in words."""
    if action in known:
        return
    reason = f"unknown action {action!r}" if action else "missing action"
    raise UsageError(f"{reason}: {listed or ', '.join(known)}{did_you_mean(action or '', known)}")


def require(options: argparse.Namespace, *names: str) -> None:
    """Raise UsageError, as Kafka's CommandLineUtils does, if one of these options is missing."""
    for name in names:
        if not given(options, name):
            raise UsageError(f'Missing required argument "[{name}]"')


def refuse_together(options: argparse.Namespace, name: str, others: Iterable[str], note: str = "") -> None:
    """Raise UsageError, as Kafka's CommandLineUtils does, if an option is given together with one of ``others``."""
    if not given(options, name):
        return
    for other in others:
        if given(options, other):
            raise UsageError(f'Option "[{name}]" can\'t be used with option "[{other}]"{note}')


def given(options: argparse.Namespace, name: str) -> bool:
    """Whether an option was given; ``--partitions 0`` counts as given."""
    value = getattr(options, name.replace("-", "_"))
    return value is not None and value is not False and value != []


# -- properties


def parse_pairs(pairs: Sequence[str], flag: str) -> dict[str, str]:
    """Parse ``name=value`` arguments; a value may contain ``=``. Raises UsageError."""
    parsed: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"{flag} {pair!r} is not of the form name=value")
        parsed[name.strip()] = value
    return parsed


def read_properties_file(path: str, flag: str) -> dict[str, str]:
    """Read the .properties file that an option names. Raises UsageError if it cannot be read."""
    from sparklog.config.properties import read_properties

    try:
        return dict(read_properties(path))
    except (OSError, UnicodeDecodeError, SparklogError) as error:
        raise UsageError(f"{flag}: {path} cannot be read: {error}") from error


def read_command_config(options: argparse.Namespace) -> dict[str, str]:
    """Return the properties of the file of ``--command-config``, without blanks around their values, as Kafka's clients
    take them; none without it. Raises UsageError."""
    from sparklog.config.properties import trim

    if not options.command_config:
        return {}
    properties = read_properties_file(options.command_config, "--command-config")
    return {name: trim(value) for name, value in properties.items()}


def parse_broker_ids(text: str, skip_empty: bool = False) -> list[int]:
    """Parse ``--broker-list``; an empty part is an error unless it is skipped. Raises UsageError."""
    try:
        return [int(part) for part in text.split(",") if part.strip() or not skip_empty]
    except ValueError:
        raise UsageError(
            f"invalid --broker-list {text!r}: must be a comma-separated list of broker ids, such as 0,1,2"
        ) from None


# -- connection


def bootstrap_server(options: argparse.Namespace) -> tuple[str, dict[str, object]]:
    """Return the cluster's root and its storage options: from flags, else the config file, else the environment."""
    refuse_controller(options)
    properties = read_command_config(options)
    root = options.bootstrap_server or properties.get("bootstrap.servers") or default_root()
    if not root:
        raise UsageError(
            f"--bootstrap-server must be specified: the cluster's root, a path or URL (or set {ROOT_VARIABLE})"
        )
    check_root(root)
    return root, storage_options(options, properties)


def refuse_controller(options: argparse.Namespace) -> None:
    if getattr(options, "bootstrap_controller", None) is not None:
        raise UsageError("there is no controller to connect to: give the cluster's root as --bootstrap-server")


def check_root(root: str) -> None:
    """Raise UsageError for the address of Kafka brokers, which an old script may still pass."""
    if are_brokers(root) and not os.path.exists(root):
        raise UsageError(
            f"{root!r} looks like the address of Kafka brokers: give the root of the cluster, a path or URL such as "
            "/data/log or s3://bucket/log; there is no server with a port"
        )


def storage_options(options: argparse.Namespace, properties: Mapping[str, str]) -> dict[str, object]:
    """Return the options of the storage client; ``--storage-option`` overrides the config file."""
    prefix = STORAGE_PROPERTY_PREFIX
    texts = {name[len(prefix) :]: value for name, value in properties.items() if name.startswith(prefix)}
    texts.update(parse_pairs(options.storage_option, "--storage-option"))
    return {name: _parse_storage_value(name, value) for name, value in texts.items()}


def _parse_storage_value(name: str, text: str) -> object:
    """Parse what can only be JSON, else return the text. Numbers stay text: keys and secrets may be all digits."""
    if text not in ("true", "false", "null") and not text.startswith(("{", "[")):
        return text
    import json

    try:
        return json.loads(text)
    except ValueError as error:
        raise UsageError(f"--storage-option {name}: invalid JSON: {error}") from None  # it may be a secret


def connect(options: argparse.Namespace) -> Coordinator:
    root, storage_options = bootstrap_server(options)
    from sparklog.coordinator import open_cluster

    return open_cluster(root, storage_options)


def connect_client(options: argparse.Namespace, client: str) -> Coordinator:
    """Open the cluster that the options name as a client does, which retries while the storage does not answer."""
    root, storage_options = bootstrap_server(options)
    from sparklog.client.config import cluster_of

    return cluster_of(client, {"bootstrap_servers": root, "storage_options": storage_options})


@contextlib.contextmanager
def connect_admin(options: argparse.Namespace) -> Iterator[AdminClient]:
    """Open an AdminClient of the cluster that the options name; what it warns of is printed as notes."""
    cluster = connect(options)
    from sparklog.client.admin.base import logger as admin_logger
    from sparklog.client.admin.client import AdminClient

    with print_notes(admin_logger), AdminClient(cluster=cluster, request_timeout_ms=math.inf) as admin:
        yield admin


@contextlib.contextmanager
def print_notes(of: logging.Logger) -> Iterator[None]:
    """Print what a logger warns of as notes."""
    notes = _Notes()
    of.addHandler(notes)
    try:
        yield
    finally:
        of.removeHandler(notes)


class _Notes(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        complain(f"Note: {getattr(record, 'note', record.getMessage())}")
