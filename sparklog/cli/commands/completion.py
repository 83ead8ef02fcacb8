"""``sparklog completion``: prints a script with which bash or zsh completes commands, actions and options.

    source <(sparklog completion bash)                              # in ~/.bashrc
    sparklog completion zsh > ~/.zsh/completions/_sparklog           # a folder of $fpath

The scripts are generated from the option parsers and run without sparklog.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

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
        connects=False,
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


def _parsers() -> dict[str, CommandParser]:
    from sparklog.cli.commands import COMMANDS, load_command

    return {name: load_command(name).parser() for name in COMMANDS}


def _metavar(option: argparse.Action) -> str:
    """Return the placeholder of an option's value in the help; empty for a switch."""
    if option.nargs == 0:
        return ""
    return option.metavar if isinstance(option.metavar, str) else option.dest.upper()


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
    parsers = _parsers()
    return _BASH.format(commands=" ".join(parsers), cases="\n".join(map(_bash_case, parsers, parsers.values())))


def _bash_case(command: str, parser: CommandParser) -> str:
    options = parser.optional_actions()
    flags = " ".join(flag for option in options for flag in option.option_strings if flag.startswith("--"))
    files = [flag for option in options if _metavar(option) in FILES for flag in option.option_strings]
    values = [
        flag for option in options if _metavar(option) not in ("", *FILES) and not option.choices
        for flag in option.option_strings
    ]  # fmt: skip
    lines = [f"        {command})", f'            words="{flags}"']
    if parser.actions:
        lines.append(f'            [ "$COMP_CWORD" -eq 2 ] && words="{" ".join(parser.actions)} $words"')
    lines.append(f'            files="{" ".join(files)}"')
    lines.append(f'            values="{" ".join(values)}"')
    for option in options:
        if option.choices:
            words = " ".join(map(str, option.choices))
            lines.append(f'            case $before in {"|".join(option.option_strings)}) words="{words}" ;; esac')
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
    from sparklog.cli.commands import COMMANDS

    parsers = _parsers()
    descriptions = "\n".join(f"        {_quote(f'{name}:{help}')}" for name, help in COMMANDS.items())
    return _ZSH.format(commands=descriptions, cases="\n".join(map(_zsh_case, parsers, parsers.values())))


def _zsh_case(command: str, parser: CommandParser) -> str:
    options = parser.optional_actions()
    specs = [_zsh_spec(option, flag) for option in options for flag in option.option_strings if flag.startswith("--")]
    if parser.actions:
        specs.insert(0, _quote(f"1:action:({' '.join(parser.actions)})"))
    return "\n".join(
        [f"        {command}) _arguments \\", *(f"            {spec} \\" for spec in specs), "            ;;"]
    )


def _zsh_spec(option: argparse.Action, flag: str) -> str:
    help = "" if option.help in (None, argparse.SUPPRESS) else str(option.help).replace("%%", "%")
    text = "".join(f"\\{character}" if character in "[]\\:" else character for character in help)
    spec = f"{'*' if isinstance(option, argparse._AppendAction) else ''}{flag}[{text}]"
    if metavar := _metavar(option):
        choices = " ".join(map(str, option.choices or ()))
        values = f"({choices})" if choices else "_files" if metavar in FILES else ""
        metavar = metavar.replace(":", "\\:")
        spec += f":{metavar}:{values}"
    return _quote(spec)


def _quote(text: str) -> str:
    """Quote a text as a single shell word on one line."""
    one_line = " ".join(text.split())
    return "'" + one_line.replace("'", "'\\''") + "'"
