"""Every command: a module with a parser and a `run`, an example that parses, a sentence for every flag."""

from __future__ import annotations

import argparse
import inspect
import pkgutil
import shlex

import pytest

from pycaffe_lms.cli import commands, flags
from pycaffe_lms.cli.catalogue import COMMANDS, module_of
from pycaffe_lms.cli.main import main


def test_every_module_is_in_the_table():
    assert {m.name for m in pkgutil.iter_modules(commands.__path__)} == {c.replace(" ", "_") for c in COMMANDS}


@pytest.mark.parametrize("words", COMMANDS)
def test_its_module_exports_a_parser_and_a_run(words):
    module = module_of(words)
    p = module.build_parser()
    assert isinstance(p, argparse.ArgumentParser) and p.prog == f"pycaffe-lms {words}"
    assert list(inspect.signature(module.run).parameters) == ["args"]


@pytest.mark.parametrize("words", COMMANDS)
def test_its_example_parses(words):
    """By the command's own parser; it is in cli/catalogue.py."""
    argv = shlex.split(COMMANDS[words].example.partition(" > ")[0])
    assert argv
    flags.parse(module_of(words).build_parser(), argv)


@pytest.mark.parametrize("words", COMMANDS)
def test_its_help_ends_with_the_example(words, capsys):
    with pytest.raises(SystemExit):
        main([*words.split(), "--help"])
    assert capsys.readouterr().out.rstrip().endswith(f"example:\n  pycaffe-lms {words} {COMMANDS[words].example}")


@pytest.mark.parametrize("words", COMMANDS)
def test_every_flag_is_explained(words):
    """In three words or more, a word without a flag in two; each is there once."""
    p = module_of(words).build_parser()
    assert len(COMMANDS[words].what.split()) >= 3 and p.description
    thin = [a.dest for a in p._actions if len((a.help or "").split()) < (3 if a.option_strings else 2)]
    assert thin in ([], ["help"])
    names = [name for a in p._actions for name in (a.option_strings or [a.metavar or a.dest])]
    assert len(set(names)) == len(names)


def test_what_reaches_a_command_are_parsed_words(monkeypatch):
    seen = []
    monkeypatch.setattr(module_of("dataset volumes"), "run", lambda args: seen.append(args) or 7)
    assert main(["dataset", "volumes", "-list", "a.txt"]) == 7 and seen[0].list == "a.txt"
    assert main(["-list=b.txt", "dataset", "volumes"]) == 2  # the name of the data set comes second
