"""Completion scripts of bash, zsh and fish. Pure: commands in, text out.

All three work alike: the first word is the command, with its second one where both together are a command ("dataset
imagenet"); after a flag with a value that value is completed, else what begins with - is a flag, in either spelling.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Callable, Sequence

from .catalogue import Command, Flag

_FUNCTION = "_pycaffe_lms"


def bash(prog: str, commands: Sequence[Command]) -> str:
    """For bash 4 or later; a value may also follow the flag with =."""
    cases, values = [], []
    for command in commands:
        names = " ".join(f"-{f.name}" for f in command.flags if not f.positional)
        cases.append(f"        {shlex.quote(command.words)}) flags={shlex.quote(names + ' -help')};;")
        values += [
            f"        {shlex.quote(f'{command.words} {_key(f)}')}) {_bash_values(f)};;" for f in _valued(command)
        ]
    first = " ".join(c.words for c in commands if " " not in c.words)
    return f"""# bash completion of {prog}
{_FUNCTION}() {{
    local cur="${{COMP_WORDS[COMP_CWORD]}}" prev="${{COMP_WORDS[COMP_CWORD-1]}}" word command="" flags="" at
    [[ $cur == = ]] && cur=""
    [[ $prev == = ]] && prev="${{COMP_WORDS[COMP_CWORD-2]}}"
    for ((at = 1; at < COMP_CWORD; at++)); do
        word="${{COMP_WORDS[at]}}"
        if [[ -z $command ]]; then
            [[ $word != -* ]] && command="$word"
        elif [[ $at == 2 ]] && {_FUNCTION}_is "$command $word"; then
            command="$command $word"
        fi
    done
    if [[ -z $command ]]; then
        mapfile -t COMPREPLY < <(compgen -W {shlex.quote(first + " -help -version")} -- "$cur")
        return
    fi
    case "$command" in
{chr(10).join(cases)}
        *) return;;
    esac
    prev="${{prev/#--/-}}"
    [[ $cur != -* ]] && {_FUNCTION}_value "$command" "$prev" && return
    if [[ $cur == --* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "${{flags//-/--}}" -- "$cur")
    elif [[ $cur == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$flags" -- "$cur")
    else
        {_FUNCTION}_value "$command" ""
    fi
}}
{_FUNCTION}_is() {{
    case "$1" in {"|".join(shlex.quote(c.words) for c in commands)}) return 0;; esac
    return 1
}}
{_FUNCTION}_value() {{
    case "$1 $2" in
{chr(10).join(values)}
        *) return 1;;
    esac
}}
complete -F {_FUNCTION} {prog}
"""


def zsh(prog: str, commands: Sequence[Command]) -> str:
    """For a folder of $fpath."""
    cases, values = [], []
    for command in commands:
        own = [f for f in command.flags if not f.positional]
        listed = " ".join(shlex.quote(f"-{f.name}:{_short(f.help)}") for f in own)
        cases.append(
            f"    {shlex.quote(command.words)}) flags=({listed} {shlex.quote('-help:what all of them are')});;"
        )
        values += [f"    {shlex.quote(f'{command.words} {_key(f)}')}) {_zsh_values(f)};;" for f in _valued(command)]
    first = " ".join(shlex.quote(f"{c.words}:{c.what}") for c in commands if " " not in c.words)
    return f"""#compdef {prog}
{_FUNCTION}_value() {{
  case "$1 $2" in
{chr(10).join(values)}
    *) return 1;;
  esac
  return 0
}}
{_FUNCTION}() {{
  local cur="${{words[CURRENT]}}" prev="${{words[CURRENT-1]}}" command="${{words[2]}}"
  local -a flags actions
  if (( CURRENT == 2 )); then
    actions=({first})
    _describe 'command' actions
    return
  fi
  if (( CURRENT > 3 )); then
    case "$command ${{words[3]}}" in
      {"|".join(shlex.quote(c.words) for c in commands if " " in c.words) or "''"}) command="$command ${{words[3]}}";;
    esac
  fi
  case "$command" in
{chr(10).join(cases)}
    *) return 1;;
  esac
  [[ "$cur" != -* ]] && {_FUNCTION}_value "$command" "${{prev/#--/-}}" && return
  if [[ "$cur" == --* ]]; then
    flags=(${{flags/#-/--}})
    _describe -o 'flag' flags
  elif [[ "$cur" == -* ]]; then
    _describe -o 'flag' flags
  else
    {_FUNCTION}_value "$command" ""
  fi
}}
if [[ "${{funcstack[1]}}" == "_{prog}" ]]; then
  {_FUNCTION} "$@"
else
  (( $+functions[compdef] )) && compdef {_FUNCTION} {prog}
fi
"""


def fish(prog: str, commands: Sequence[Command]) -> str:
    """For fish 3 or later."""
    lines = [
        f"# fish completion of {prog}",
        f"function {_FUNCTION}_is",
        "    set -l words (commandline -opc)",
        f"    set -l both {' '.join(_fish_quote(c.words) for c in commands if ' ' in c.words)}",
        "    set -l command $words[2]",
        '    test (count $words) -gt 2; and contains -- "$words[2] $words[3]" $both',
        '    and set command "$words[2] $words[3]"',
        '    test "$command" = "$argv"',
        "end",
        f"complete -c {prog} -f",
    ]
    for command in commands:
        if " " not in command.words:
            lines.append(
                f"complete -c {prog} -n 'test (count (commandline -opc)) -eq 1' -a {command.words} "
                f"-d {_fish_quote(command.what)}"
            )
        start = f"complete -c {prog} -n '{_FUNCTION}_is {command.words}'"
        for flag in command.flags:
            what = f"-d {_fish_quote(_short(flag.help))}"
            if flag.positional:
                lines.append(f"{start} {_fish_values(flag)}" + (f" {what}" if flag.choices else ""))
            else:
                lines += [f"{start} -{kind} {flag.name} {_fish_values(flag)} {what}" for kind in ("o", "l")]
    return "\n".join(lines) + "\n"


SCRIPTS: dict[str, Callable[[str, Sequence[Command]], str]] = {"bash": bash, "zsh": zsh, "fish": fish}


def _valued(command: Command) -> list[Flag]:
    """What has a value to complete: flags, then the words without one (together as one)."""
    flags = [f for f in command.flags if not f.positional and f.kind]
    words = [f for f in command.flags if f.positional]
    return flags + words[:1] if len(words) <= 1 else [*flags, _any_file(words)]


def _any_file(words: Sequence[Flag]) -> Flag:
    """Of several words the place is not counted: whatever is a file fits."""
    return next((w for w in words if w.kind == "file"), words[0])


def _key(flag: Flag) -> str:
    return "" if flag.positional else f"-{flag.name}"


def _bash_values(flag: Flag) -> str:
    if flag.kind == "choice":
        return f'mapfile -t COMPREPLY < <(compgen -W {shlex.quote(" ".join(flag.choices))} -- "$cur")'
    if flag.kind not in ("folder", "file"):
        return "COMPREPLY=()"
    letter = "d" if flag.kind == "folder" else "f"
    return f'compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -{letter} -- "$cur")'


def _zsh_values(flag: Flag) -> str:
    if flag.kind == "choice":
        return "compadd -- " + " ".join(map(shlex.quote, flag.choices))
    return {"folder": "_files -/", "file": "_files"}.get(flag.kind, f"_message {shlex.quote(flag.value)}")


def _fish_values(flag: Flag) -> str:
    own = "" if flag.positional else "-x "  # a word of its own takes no value
    if flag.kind == "choice":
        return f"{own}-a {_fish_quote(' '.join(flag.choices))}"
    if flag.kind == "folder":
        return f"{own}-a '(__fish_complete_directories)'"
    if flag.kind == "file":
        return "-F" if flag.positional else "-r -F"
    return "" if flag.positional or not flag.kind else "-x"


def _short(text: str) -> str:
    return textwrap.shorten(text, 90, placeholder=" ..")


def _fish_quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
