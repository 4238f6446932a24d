"""Every command: an example that parses, a sentence for every flag; and completion in real shells."""

from __future__ import annotations

import argparse
import importlib
import shlex
import shutil
import subprocess

import pytest

from pycaffe_lms.cli import flags, shells
from pycaffe_lms.cli.catalogue import Command, Flag, commands
from pycaffe_lms.cli.examples import EXAMPLES
from pycaffe_lms.cli.main import ACTIONS, main

COMMANDS = commands(ACTIONS)
NAMES = [c.words for c in COMMANDS]


def _parser(words: str) -> argparse.ArgumentParser:
    action, *sub = words.split()
    return flags.parser_of(importlib.import_module(f"pycaffe_lms.cli.commands.{action}").run, sub)


@pytest.mark.parametrize("command", COMMANDS, ids=NAMES)
def test_its_example_parses(command):
    """By the command's own parser; add a line to cli/examples.py for a new command."""
    before, called, rest = command.example.rpartition(f"pycaffe-lms {command.words} ")
    assert called and (not before or before.endswith("; ")), "no example in cli/examples.py"
    argv = shlex.split(rest.partition(" > ")[0])
    flags.parse(_parser(command.words), argv)


@pytest.mark.parametrize("command", COMMANDS, ids=NAMES)
def test_its_help_ends_with_the_example(command, capsys):
    with pytest.raises(SystemExit):
        main([*command.words.split(), "--help"])
    assert capsys.readouterr().out.rstrip().endswith(f"example:\n  {command.example}")


def test_the_table_of_examples_has_no_others():
    assert set(EXAMPLES) <= set(NAMES)


@pytest.mark.parametrize("command", COMMANDS, ids=NAMES)
def test_every_flag_is_explained(command):
    """In three words or more, a word without a flag in two; each is there once."""
    assert len(command.what.split()) >= 3 and command.about
    thin = [f.name for f in command.flags if len(f.help.split()) < (2 if f.positional else 3)]
    assert not thin
    assert len({f.name for f in command.flags}) == len(command.flags)


def test_what_a_flag_is():
    p = flags.parser("train", "About.")
    p.add_argument("words", metavar="LISTFILE", nargs="?", help="a list")
    p.add_argument("--much", type=int, default=3, help="how much: %(default)s")
    p.add_argument("--bare", nargs="?", const="1", metavar="KB", help="bare or not")
    p.add_argument("--on", action="store_true", help="whether to")
    p.add_argument("--kind", choices=("a", "b"), required=True, help="100%% sure")
    p.add_argument_group("More").add_argument("--to", metavar="DIR", default="x", help="where to")

    class Module:
        @staticmethod
        def run(argv):
            flags.parse(p, argv)
            raise AssertionError("got further than parse")

    from pycaffe_lms.cli.catalogue import _command

    made = _command(Module, "train", (), "trains")
    assert made.usage == "pycaffe-lms train [LISTFILE] -kind a|b [flags]"
    assert (made.words, made.what, made.about, made.example) == ("train", "trains", "About.", EXAMPLES["train"])
    assert {f.name: (f.value, f.kind, f.default, f.help, f.required, f.group or "") for f in made.flags} == {
        "LISTFILE": ("LISTFILE", "file", "", "a list", False, ""),
        "much": ("N", "other", "3", "how much: 3", False, ""),
        "bare": ("[KB]", "other", "", "bare or not", False, ""),
        "on": ("", "", "", "whether to", False, ""),
        "kind": ("a|b", "choice", "", "100% sure", True, ""),
        "to": ("DIR", "folder", "x", "where to", False, "More"),
    }


def test_a_command_that_parses_nothing_is_a_bug_of_ours():
    with pytest.raises(AssertionError, match="does not call flags.parse"):
        flags.parser_of(lambda argv: 0)
    flags.parse(flags.parser("x", ""), [])  # parsing works again


# -- completion --------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files to complete, one with a space, and a folder named like a command."""
    folder = tmp_path_factory.mktemp("files")
    for name in ("solver.prototxt", "solver two.prototxt"):
        (folder / name).touch()
    (folder / "test").mkdir()
    (folder / "solvers").mkdir()
    for shell, script in shells.SCRIPTS.items():
        (folder / f"script.{shell}").write_text(script("pycaffe-lms", COMMANDS))
    return folder


def _bash(folder, words):
    quoted = " ".join(map(shlex.quote, words))
    script = f"""source script.bash; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _pycaffe_lms
    printf '%s\\n' "${{COMPREPLY[@]}}" """
    return _said(["bash", "--norc", "-c", script], folder)


def _zsh(folder, words):
    """What is offered for the word's place, before zsh itself compares it with what was typed."""
    quoted = " ".join(map(shlex.quote, words))
    script = f"""compadd() {{ shift; print -rl -- $@ }}
    _files() {{ [[ $1 == -/ ]] && print -rl -- *(/) || print -rl -- * }}
    _message() {{ }}
    _describe() {{ local list=${{@[-1]}}; print -rl -- ${{(P)list}} }}
    source ./script.zsh; words=({quoted}); CURRENT={len(words)}; _pycaffe_lms"""
    offered = [line.partition(":")[0] for line in _said(["zsh", "-f", "-c", script], folder)]
    return [o for o in offered if o.startswith(words[-1])]


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


OWN = [f"-{f.name}" for c in COMMANDS if c.words == "train" for f in c.flags]
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


@pytest.mark.parametrize("shell", shells.SCRIPTS)
def test_the_command_prints_the_script(shell, capsys):
    assert main(["completion", shell]) == 0
    assert capsys.readouterr().out == shells.SCRIPTS[shell]("pycaffe-lms", COMMANDS)


def test_words_that_a_shell_would_take_apart(tmp_path):
    """Quotes, dollars and backslashes in a flag's words stay words."""
    odd = Flag("odd", False, "FILE", (), "", 'it\'s $(touch broken) `touch broken` \\ "x"', False, "")
    for shell, script in shells.SCRIPTS.items():
        (tmp_path / f"script.{shell}").write_text(script("pycaffe-lms", [Command("run", "it's", "", "", "", (odd,))]))
    for shell in filter(shutil.which, shells.SCRIPTS):
        _said([shell, "-c", f"source ./script.{shell}"], tmp_path)
    assert _bash(tmp_path, ["pycaffe-lms", "run", "-o"]) == ["-odd"]
    assert not (tmp_path / "broken").exists()
