"""`pycaffe-lms completion SHELL`: print a script that completes commands, flags and their values in a shell."""

from __future__ import annotations

import argparse
import re

from ...errors import MissingDependency
from .. import flags
from ..catalogue import COMMANDS, module_of

SHELLS = ("bash", "zsh", "fish")
_FOLDER, _FILE = ("DIR", "FOLDER"), ("FILE", "DB", "LIST", "IMAGES", "LABELS", "LOG", "MODEL", "SOLVER")
_ABOUT = """Print a script that completes commands, flags and their values in bash, zsh or fish. It is made from
the commands themselves, so print it again after an upgrade. Needs the package shtab.

  bash:  pycaffe-lms completion bash > ~/.local/share/bash-completion/completions/pycaffe-lms
  zsh:   pycaffe-lms completion zsh > ~/.zfunc/_pycaffe-lms    (a folder of $fpath, before compinit)
  fish:  pycaffe-lms completion fish > ~/.config/fish/completions/pycaffe-lms.fish"""
# bash makes three words of -flag=value; shtab's function expects two.
_BASH_EQUALS = """
_pycaffe_lms() {
    local word words=() at=$COMP_CWORD
    for word in "${COMP_WORDS[@]:0:COMP_CWORD}"; do
        if [[ $word == = ]]; then ((at--)); else words+=("$word"); fi
    done
    word="${COMP_WORDS[COMP_CWORD]}"
    [[ $word == = ]] && word=""
    COMP_WORDS=("${words[@]}" "$word") COMP_CWORD=$at
    _shtab_pycaffe_lms
}
complete -o bashdefault -F _pycaffe_lms pycaffe-lms"""


def build_parser() -> flags.Parser:
    """Return the parser."""
    p = flags.parser("completion", _ABOUT)
    p.add_argument("shell", choices=SHELLS, help="which shell it is for")
    return p


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    print(script(args.shell))
    return 0


def script(shell: str) -> str:
    """Return the script of a shell. Raises MissingDependency."""
    try:
        import shtab
    except ImportError:
        raise MissingDependency("shtab", "completion", "'pycaffe-lms[completion]'") from None
    text: str = shtab.complete(_tree(shtab.FILE, shtab.DIRECTORY), shell)
    if shell == "bash":
        return text + _BASH_EQUALS
    if shell == "fish":  # shtab takes what has one hyphen for a single letter
        text = re.sub(r"(?m)^(complete .*?) -s (?=\w\w)", r"\1 -o ", text)
        return re.sub(r"(_opts_with_value )(--.*)", lambda m: f"{m[1]}{m[2]} {m[2].replace('--', '-')}", text)
    return text


def _tree(file: object, folder: object) -> argparse.ArgumentParser:
    """Return a parser that has every command as a subparser. file, folder: how shtab completes names of them."""

    def flags_of(words: str) -> flags.Parser:
        p = module_of(words).build_parser()
        for action in p._actions:
            names = [o.lstrip("-") for o in action.option_strings if o != "-h"]
            action.option_strings = [hyphens + name for name in names for hyphens in ("-", "--")]
            if names and action.nargs == "?":
                action.metavar = f":{action.metavar}"  # zsh then knows that the value may be missing
            if (what := _completed(action)) is not None:
                action.complete = {"file": file, "folder": folder}[what]  # type: ignore[attr-defined]
        return p

    root = argparse.ArgumentParser(flags.PROG, add_help=False)
    root.add_argument("-help", "--help", action="help", help="list the commands")
    root.add_argument("-version", "--version", action="version", help="print the version")
    first = root.add_subparsers()
    for words, command in COMMANDS.items():
        if " " in words:
            continue
        p = flags_of(words)
        if not any(other.startswith(f"{words} ") for other in COMMANDS):
            first.add_parser(words, help=command.what, parents=[p], add_help=False)
            continue
        name = next(action for action in p._actions if not action.option_strings)
        p._actions.remove(name)  # its values are subparsers, with flags of their own or those of the command
        second = first.add_parser(words, help=command.what, parents=[p], add_help=False).add_subparsers()
        for value in name.choices or ():
            both = f"{words} {value}"
            own = flags_of(both) if both in COMMANDS else p
            second.add_parser(value, help=both, parents=[own], add_help=False)
    return root


def _completed(action: argparse.Action) -> str | None:
    """Return "file" or "folder" if that is what an action's value names, by the word that stands for it in help."""
    if action.choices or action.nargs == 0:
        return None
    word = str(action.metavar or ("" if action.type else "FILE")).upper()
    if any(part in word for part in _FOLDER):
        return "folder"
    return "file" if any(part in word for part in _FILE) else None
