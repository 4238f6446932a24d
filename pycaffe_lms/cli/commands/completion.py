"""`pycaffe-lms completion SHELL`: print a script that completes commands, flags and their values in a shell."""

from __future__ import annotations

from .. import flags, shells

_ABOUT = """Print a script that completes commands, flags and their values in bash, zsh or fish. It is made from
the commands themselves: print it anew after an upgrade.

  bash:  pycaffe-lms completion bash > ~/.local/share/bash-completion/completions/pycaffe-lms
  zsh:   pycaffe-lms completion zsh > ~/.zfunc/_pycaffe-lms    (a folder of $fpath, before compinit)
  fish:  pycaffe-lms completion fish > ~/.config/fish/completions/pycaffe-lms.fish"""


def run(argv: list[str]) -> int:
    """Print it."""
    p = flags.parser("completion", _ABOUT)
    p.add_argument("shell", choices=tuple(shells.SCRIPTS), help="which shell it is for")
    args = flags.parse(p, argv)
    from ..catalogue import commands
    from ..main import ACTIONS

    print(shells.SCRIPTS[args.shell](flags.PROG, commands(ACTIONS)), end="")
    return 0
