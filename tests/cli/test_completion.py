"""`pycaffe-lms completion`: what real shells offer with the scripts that it prints."""

from __future__ import annotations

import copy
import shlex
import shutil
import subprocess
import sys

import pytest

from pycaffe_lms.cli.catalogue import module_of
from pycaffe_lms.cli.commands.completion import SHELLS, script
from pycaffe_lms.cli.main import main

pytest.importorskip("shtab")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files to complete, one with a space, and a folder named like a command."""
    folder = tmp_path_factory.mktemp("files")
    for name in ("solver.prototxt", "solver two.prototxt"):
        (folder / name).touch()
    (folder / "test").mkdir()
    (folder / "solvers").mkdir()
    for shell in SHELLS:
        (folder / f"script.{shell}").write_text(script(shell))
    (folder / "_pycaffe-lms").write_text(script("zsh"))
    return folder


def _bash(folder, words):
    quoted = " ".join(map(shlex.quote, words))
    script = f"""source script.bash; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _pycaffe_lms
    printf '%s\\n' "${{COMPREPLY[@]}}" """
    return _said(["bash", "--norc", "-c", script], folder)


def _zsh(folder, words):
    """Of zsh itself, in a terminal of its own, that writes what is offered to a file."""
    (folder / "setup.zsh").write_text(_ZSH_SETUP)
    for name in ("offered", "done"):
        (folder / name).unlink(missing_ok=True)
    script = f"""zmodload zsh/zpty; zpty shell zsh -f -i; zpty -w shell "source ./setup.zsh"
    zpty -r -m shell line "*READY*"; zpty -n -w shell {shlex.quote(" ".join(words))}$'\\t'
    for ((i = 0; i < 200; i++)); do [[ -e done ]] && break; zpty -r -t shell line; sleep 0.05; done; zpty -d shell"""
    _said(["zsh", "-f", "-c", script], folder)
    offered = (folder / "offered").read_text().splitlines() if (folder / "offered").exists() else []
    return [name.rstrip("/").replace("\\ ", " ") for name in dict.fromkeys(offered)]


_ZSH_SETUP = r"""
fpath=($PWD $fpath); autoload -U compinit; compinit -u -D
zstyle ":completion:*" completer _complete
compadd() {
    if [[ ${@[1,(i)(-|--)]} != *-(O|A|D)\ * ]]; then
        local -a found; builtin compadd -A found "$@"; print -rl -- $found >> offered
    fi
    builtin compadd "$@"
}
comppostfuncs=(finish); finish() { : > done }
bindkey "^I" complete-word; print READY
"""


def _fish(folder, words):
    line = " ".join(words)
    script = f"source script.fish; complete -C {shlex.quote(line)}"
    found = [entry.partition("\t")[0] for entry in _said(["fish", "--no-config", "-c", script], folder)]
    return [f.rstrip("/").replace("\\ ", " ") for f in found]


def _said(argv, folder):
    if shutil.which(argv[0]) is None:
        pytest.skip(f"{argv[0]} is not installed")
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=60)
    assert not done.stderr, done.stderr
    return done.stdout.splitlines()


OWN = [o[1:] for a in module_of("train").build_parser()._actions for o in a.option_strings if o.startswith("--")]
CASES = {
    "commands": (["da"], ["dataset"]),
    "a command that a folder is named like": (["tes"], ["test"]),
    "flags": (["train", "-lms_"], [f for f in OWN if f.startswith("-lms_")]),
    "flags in the other spelling": (["train", "--lms_f"], ["--lms_frac"]),
    "choices": (["train", "-backend", ""], ["cpu", "cuda", "sim"]),
    "choices of the other spelling": (["train", "--backend", "c"], ["cpu", "cuda"]),
    "another command's choices": (["convert_imageset", "-backend", ""], ["leveldb", "lmdb"]),
    "a flag after one whose value may be missing": (["train", "-lms", "-solv"], ["-solver"]),
    "second words": (["dataset", "vol"], ["volumes"]),
    "flags of two words": (["dataset", "imagenet", "-syn"], ["-synsets"]),
    "flags that are not another's": (["test", "-solv"], []),
    "words": (["completion", ""], ["bash", "fish", "zsh"]),
    "files": (["train", "-solver", "solver"], ["solver two.prototxt", "solver.prototxt", "solvers"]),
    "folders": (["train", "-tensorboard", "solver"], ["solvers"]),
    "nothing for a number": (["train", "-lms_frac", ""], []),
}


@pytest.mark.parametrize("shell", [_bash, _zsh, _fish], ids=["bash", "zsh", "fish"])
@pytest.mark.parametrize("case", CASES)
def test_completes(case, shell, folder):
    words, expected = CASES[case]
    assert sorted(w for w in shell(folder, ["pycaffe-lms", *words]) if w) == sorted(expected)


def test_bash_completes_after_an_equals_sign(folder):
    """Where bash makes three words of one."""
    assert _bash(folder, ["pycaffe-lms", "train", "-layout", "=", "n"]) == ["nchw", "nhwc"]
    assert _bash(folder, ["pycaffe-lms", "train", "-math", "="]) == ["tf32", "fp32", "bf16"]


@pytest.mark.parametrize("shell", SHELLS)
def test_the_command_prints_the_script(shell, capsys):
    assert main(["completion", shell]) == 0
    assert capsys.readouterr().out == script(shell) + "\n"


def test_without_shtab_the_fix_is_named(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 1
    said = capsys.readouterr().err
    assert "completion needs the package shtab" in said and "pip install 'pycaffe-lms[completion]'" in said


def test_words_that_a_shell_would_take_apart(tmp_path, monkeypatch):
    """Quotes, dollars and backslashes in a flag's words stay words."""
    p = module_of("diff").build_parser()
    p.add_argument("--odd", metavar="FILE", help='it\'s $(touch broken) `touch broken` \\ "x"')
    monkeypatch.setattr(module_of("diff"), "build_parser", lambda: copy.deepcopy(p))
    for shell in SHELLS:
        (tmp_path / f"script.{shell}").write_text(script(shell))
    for shell in filter(shutil.which, ("bash", "fish")):
        _said([shell, "-c", f"source ./script.{shell}"], tmp_path)
    assert _bash(tmp_path, ["pycaffe-lms", "diff", "-o"]) == ["-odd"]
    assert not (tmp_path / "broken").exists()
