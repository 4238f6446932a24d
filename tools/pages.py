"""What generators of one file share: replace a part of a page, and write the file or only say whether it is current."""

from __future__ import annotations

import argparse
import operator
from collections.abc import Callable, Sequence
from pathlib import Path


def with_part(page: str, name: str, text: str) -> str:
    """Return a page with `text` between the markers of `name`. Raises ValueError unless there is one pair."""
    begin, end = f"<!-- {name}: generated -->\n", f"<!-- {name}: end -->"
    if page.count(begin) != 1 or page.count(end) != 1:
        raise ValueError(f"there must be one pair of markers of {name!r}")
    head, _, rest = page.partition(begin)
    return f"{head}{begin}{text}\n{end}{rest.partition(end)[2]}"


def write_or_check(
    file: Path,
    text: Callable[[], str],
    what: str,
    argv: Sequence[str] | None,
    is_current: Callable[[str, str], bool] = operator.eq,
) -> int:
    """Write a generated file unless it is current; with --check only say whether it is. Return the exit code.

    Args:
        text: makes the whole file.
        what: what --help says that the generator does.
        argv: arguments of the command line; None: those of the process.
        is_current: compares the file's text with the new one.
    """
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the file is not current")
    check, wanted = parser.parse_args(argv).check, text()
    if file.is_file() and is_current(file.read_bytes().decode(), wanted):
        return 0
    if not check:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(wanted.encode())
    print(f"{'not current' if check else 'written'}: {file.name}")
    return int(check)
