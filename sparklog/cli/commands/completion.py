"""``sparklog completion``: prints a script with which bash or zsh completes commands, actions and options.

    source <(sparklog completion bash)                              # in ~/.bashrc
    sparklog completion zsh > ~/.zsh/completions/_sparklog           # a folder of $fpath

The scripts are generated from the option parsers and run without sparklog.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import NamedTuple

from sparklog.cli.arguments.parser import CommandParser, UsageError
from sparklog.errors.suggestions import did_you_mean

FILES = frozenset({"FILE", "FILES", "ROOT", "CONFIG-FILE"})
"""Metavars of the options whose value is completed as a path."""


def parser() -> CommandParser:
    options = CommandParser(
        "completion",
        "Print a script with which the shell completes commands and options.",
        "sparklog completion bash > /etc/bash_completion.d/sparklog",
        "bash|zsh",
    )
    options.add_actions(("bash", "zsh"))
    return options


def run(options: argparse.Namespace) -> int:
    scripts: dict[str, Callable[[], str]] = {"bash": bash_script, "zsh": zsh_script}
    if options.action not in scripts:
        reason = f"unsupported shell {options.action!r}" if options.action else "missing shell"
        raise UsageError(f"{reason}: bash or zsh{did_you_mean(options.action or '', scripts)}")
    print(scripts[options.action](), end="")
    return 0


class _Option(NamedTuple):
    """An option of a command, with all its names."""

    flags: tuple[str, ...]
    metavar: str
    """The placeholder of its value in the help; empty for a switch."""
    choices: tuple[str, ...]
    repeatable: bool
    help: str


class _Command(NamedTuple):
    name: str
    help: str
    actions: tuple[str, ...]
    options: list[_Option]


def _commands() -> Iterator[_Command]:
    from sparklog.cli.commands import COMMANDS, load_command

    for name, description in COMMANDS.items():
        options: CommandParser = load_command(name).parser()
        yield _Command(name, description, options.actions, [_option(action) for action in options.optional_actions()])


def _option(action: argparse.Action) -> _Option:
    takes_value = action.nargs != 0
    metavar = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    return _Option(
        flags=tuple(action.option_strings),
        metavar=metavar if takes_value else "",
        choices=tuple(map(str, action.choices or ())),
        repeatable=isinstance(action, argparse._AppendAction),
        help="" if action.help in (None, argparse.SUPPRESS) else str(action.help).replace("%%", "%"),
    )


# -- bash

_BASH = """\
# Completion of sparklog for bash; made by `sparklog completion bash`.
_sparklog() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} command=${{COMP_WORDS[1]}}
    local words="" values="" files=""
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "{commands} help --help --version --debug" -- "$word"))
        return
    fi
    case $command in
        help) [ "$COMP_CWORD" -eq 2 ] && words="{commands}" ;;
{cases}
    esac
    case " $files " in *" $before "*)
        compopt -o filenames 2>/dev/null
        COMPREPLY=($(compgen -f -- "$word"))
        return ;;
    esac
    case " $values " in *" $before "*) return ;; esac
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -F _sparklog sparklog
"""


def bash_script() -> str:
    """Return the script for bash to source."""
    commands = list(_commands())
    cases = "\n".join(_bash_case(command) for command in commands)
    return _BASH.format(commands=" ".join(command.name for command in commands), cases=cases)


def _bash_case(command: _Command) -> str:
    flags = " ".join(flag for option in command.options for flag in option.flags if flag.startswith("--"))
    files = [flag for option in command.options if option.metavar in FILES for flag in option.flags]
    with_choices = [option for option in command.options if option.choices]
    values = [
        flag for option in command.options if option.metavar and option.metavar not in FILES and not option.choices
        for flag in option.flags
    ]  # fmt: skip
    lines = [f"        {command.name})", f'            words="{flags}"']
    if command.actions:
        lines.append(f'            [ "$COMP_CWORD" -eq 2 ] && words="{" ".join(command.actions)} $words"')
    lines.append(f'            files="{" ".join(files)}"')
    lines.append(f'            values="{" ".join(values)}"')
    for option in with_choices:
        lines.append(
            f'            case $before in {"|".join(option.flags)}) words="{" ".join(option.choices)}" ;; esac'
        )
    return "\n".join([*lines, "            ;;"])


# -- zsh

_ZSH = """\
#compdef sparklog
# Completion of sparklog for zsh; made by `sparklog completion zsh`.
_sparklog() {{
    local -a commands
    commands=(
{commands}
    )
    if (( CURRENT == 2 )); then
        _describe -t commands command commands
        return
    fi
    local command=${{words[2]}}
    shift words
    (( CURRENT-- ))
    case $command in
        help) _describe -t commands command commands ;;
{cases}
    esac
}}
if [ "$funcstack[1]" = "_sparklog" ]; then
    _sparklog "$@"
else
    compdef _sparklog sparklog
fi
"""


def zsh_script() -> str:
    """Return the script for a folder of zsh's ``fpath``, or to source after ``compinit``."""
    commands = list(_commands())
    descriptions = "\n".join(f"        {_quote(f'{command.name}:{command.help}')}" for command in commands)
    return _ZSH.format(commands=descriptions, cases="\n".join(map(_zsh_case, commands)))


def _zsh_case(command: _Command) -> str:
    specs = [_zsh_spec(option, flag) for option in command.options for flag in option.flags if flag.startswith("--")]
    if command.actions:
        specs.insert(0, _quote(f"1:action:({' '.join(command.actions)})"))
    return "\n".join(
        [f"        {command.name}) _arguments \\", *(f"            {spec} \\" for spec in specs), "            ;;"]
    )


def _zsh_spec(option: _Option, flag: str) -> str:
    text = "".join(f"\\{character}" if character in "[]\\:" else character for character in option.help)
    spec = f"{'*' if option.repeatable else ''}{flag}[{text}]"
    if option.metavar:
        metavar = option.metavar.replace(":", "\\:")
        values = f"({' '.join(option.choices)})" if option.choices else "_files" if option.metavar in FILES else ""
        spec += f":{metavar}:{values}"
    return _quote(spec)


def _quote(text: str) -> str:
    """Quote a text as a single shell word on one line."""
    one_line = " ".join(text.split())
    return "'" + one_line.replace("'", "'\\''") + "'"
