"""Log lines as Caffe's, a bar in a terminal, and the log above the bar."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pycaffe_lms.cli.progress import Progress
from pycaffe_lms.errors import MissingDependency
from pycaffe_lms.log import LOGGER, log_to_stderr

ROOT = Path(__file__).resolve().parents[2]


def lines(capsys):
    return re.findall(r"\] Processed (\d+) files\.", capsys.readouterr().err)


def count_to(progress, *numbers, first=1):
    for number in numbers:
        for done in range(first, number + 1):
            progress(done, number)


@pytest.mark.parametrize(
    "count, said", [(0, []), (5, ["5"]), (2500, ["1000", "2000", "2500"]), (2000, ["1000", "2000"])]
)
def test_a_line_every_thousand_and_one_for_the_rest(capsys, count, said):
    with log_to_stderr(), Progress("log") as progress:
        count_to(progress, count)
    assert lines(capsys) == said


def test_a_second_database_begins_anew(capsys):
    with log_to_stderr(), Progress("log") as progress:
        count_to(progress, 1500, 20)
    assert lines(capsys) == ["1000", "1500", "20"]


def test_records_that_are_left_out_are_not_said_twice(capsys):
    """As many calls as pictures; the number stays where one was left out."""
    with log_to_stderr(), Progress("log", every=2) as progress:
        for at in [(1, 5), (2, 5), (2, 4), (2, 3), (3, 3)]:
            progress(*at)
    assert lines(capsys) == ["2", "3"]


def test_an_error_ends_without_a_last_line(capsys):
    with log_to_stderr(), pytest.raises(KeyError), Progress("log") as progress:
        progress(1, 3)
        raise KeyError
    assert lines(capsys) == []


def test_a_bar_without_rich_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "rich", None)
    with pytest.raises(MissingDependency, match=r"(?s)rich.*pip install 'pycaffe-lms\[progress\]'; or -progress log"):
        Progress("bar")
    Progress("auto")


def test_the_log_goes_on_after_a_bar_that_is_no_terminal(capsys):
    pytest.importorskip("rich")
    with log_to_stderr():
        with Progress("bar") as progress:
            count_to(progress, 3)
            logging.getLogger(LOGGER).error("one is bad")
        logging.getLogger(LOGGER).info("after")
    said = capsys.readouterr().err
    assert "3/3" in said and said.index("one is bad") < said.index("after")
    assert said.count("Processed") == 1


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
@pytest.mark.parametrize("mode, bar", [("auto", True), ("log", False)])
def test_a_terminal_shows_a_bar_with_its_rate_below_the_log(mode, bar):
    pytest.importorskip("rich")
    import pty

    program = (
        "import logging, time\n"
        "from pycaffe_lms.cli.progress import Progress\n"
        "from pycaffe_lms.log import log_to_stderr\n"
        "with log_to_stderr():\n"
        f"    with Progress({mode!r}) as progress:\n"
        "        for done in range(1, 41):\n"
        "            time.sleep(0.01)\n"
        "            progress(done, 40)\n"
        "            if done == 20:\n"
        "                logging.getLogger('pycaffe_lms').error('left out')\n"
        "    logging.getLogger('pycaffe_lms').info('after')\n"
    )
    master, slave = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "200", "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", program], stderr=slave, env=env) as process:
        os.close(slave)
        said = b""
        while True:
            try:
                block = os.read(master, 65536)
            except OSError:  # Linux: the other end is closed
                break
            if not block:
                break
            said += block
    os.close(master)
    assert process.returncode == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said.decode())
    assert ("40/40" in text) is bar and bool(re.search(r"\d+ files/s", text)) is bar
    assert re.search(r"E\d{4} [^\r\n]*\] left out\r?\n", text) and "] after" in text
    assert text.count("Processed 40 files.") == 1
