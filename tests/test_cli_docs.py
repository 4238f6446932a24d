"""docs/cli.md is what tools/gen_cli_docs.py writes, and everything is in it."""

from pathlib import Path

import pytest

from pycaffe_lms.cli.catalogue import COMMANDS, module_of
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.options import options_of

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def gen_cli_docs(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import gen_cli_docs

    return gen_cli_docs


def test_the_file_is_current(gen_cli_docs):
    assert gen_cli_docs.main(["--check"]) == 0, "run: python tools/gen_cli_docs.py"


def test_every_command_and_flag_has_a_place(gen_cli_docs):
    """In the command's section: its words, its flags (described there or listed by name), its example."""
    text = gen_cli_docs.text()
    sections = {s.partition("\n")[0]: s for s in text.split("\n## ")[1:]}
    found = [gen_cli_docs.section(words, module_of(words).build_parser()) for words in COMMANDS]
    more = ["Flags of several commands", "Settings of Large Model Support in Python"]
    assert list(sections) == [*COMMANDS, *more]
    shared = sections["Flags of several commands"]
    for command in found:
        section = sections[command.words]
        assert command.example in section and command.usage in section
        assert f"[{command.words}](#{command.words.replace(' ', '-')})" in text
        for flag in command.flags:
            if flag.positional:
                name = flag.name.replace("|", "\\|")  # else it ends the cell
                assert f"| `{name}` | " in section
            else:
                row = f"| `-{flag.name}{' ' + flag.value if flag.value else ''}` | ".replace("|", "\\|")[1:-3] + "| "
                assert row in section or (row in shared and f"`-{flag.name}`" in section), flag.name


def test_a_new_command_appears_by_itself(gen_cli_docs):
    text = gen_cli_docs.text(["device_query"])
    assert "| [device_query](#device_query) | show what the devices are |" in text and "`-gpu N,..`" in text
    assert "## train" not in text


def test_stars_are_no_emphasis(gen_cli_docs):
    assert r"DIR/train/CLASS/\* and DIR/val/CLASS/\*, or DIR/val/\* with" in gen_cli_docs.text(["dataset imagenet"])


def test_every_setting_is_a_row_of_the_keywords(gen_cli_docs):
    rows = gen_cli_docs.text().partition("\n## Settings of Large Model Support in Python\n")[2]
    for name, option in options_of(LMSConfig).items():
        assert rows.count(f"| `{name}` | `-{option.flag}` | ") == 1


def test_check_writes_nothing(gen_cli_docs, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(gen_cli_docs, "FILE", tmp_path / "docs" / "cli.md")
    assert gen_cli_docs.main(["--check"]) == 1
    assert capsys.readouterr().out == "not current: cli.md\n" and not list(tmp_path.iterdir())
    assert gen_cli_docs.main([]) == 0 and gen_cli_docs.main(["--check"]) == 0
