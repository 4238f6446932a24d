"""Check a built site: `python tools/check_site.py build/site`. Nothing is loaded from the web, no link is dead, and the
style of code applies to every block of it: lines of others would be cut at the edge.

Links to the web may be clicked, so they are allowed; scripts, styles, fonts and images must be in the folder.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlparse

LOADING = {"script": "src", "img": "src", "iframe": "src", "source": "src", "object": "data", "link": "href"}
# Of <link>: what only names another page.
NAMING = {"index", "search", "next", "prev", "canonical", "author", "copyright", "contents", "top"}


class _Page(HTMLParser):
    """Collect what a page loads, where it links to, and the anchors it has."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.plain_blocks = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {key: value or "" for key, value in attrs}
        self.anchors |= {found[key] for key in ("id", "name") if key in found}
        self.plain_blocks += tag == "pre" and "literal-block" in found.get("class", "").split()
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        names = tag == "link" and bool(NAMING & set(found.get("rel", "").split()))
        if tag in LOADING and LOADING[tag] in found:
            (self.links if names else self.loaded).append(found[LOADING[tag]])


@cache
def read(file: Path) -> _Page:
    """Return what a page has."""
    page = _Page()
    page.feed(file.read_text())
    return page


def faults(folder: Path) -> list[str]:
    """Return what is wrong, a line each."""
    found = []
    for css in folder.rglob("*.css"):
        for url in re.findall(r"(?:url\(|@import )\s*['\"]?((?:https?:)?//[^'\")]*)", css.read_text()):
            found.append(f"{css.relative_to(folder)} loads {url}")
    for file in sorted(folder.rglob("*.html")):
        page, name = read(file), file.relative_to(folder)
        found += [f"{name} loads {url}" for url in page.loaded if re.match(r"(https?:)?//", url)]
        if page.plain_blocks:
            found.append(f"{name} has {page.plain_blocks} blocks of code without the style of code")
        for link in dict.fromkeys(page.loaded + page.links):
            url = urlparse(link)
            if url.scheme or url.netloc or not link or "?" in link and not url.path:
                continue
            target = (file.parent / unquote(url.path)).resolve() if url.path else file
            if not target.exists():
                found.append(f"{name} links to {link}, which is not there")
            elif url.fragment and target.suffix == ".html" and unquote(url.fragment) not in read(target).anchors:
                found.append(f"{name} links to {link}, which has no such anchor")
    return found


def main(argv: list[str]) -> int:
    """Print faults; return 1 if there are any."""
    folder = Path(argv[0]) if argv else Path("build/site")
    pages = len(list(folder.rglob("*.html")))
    wrong = faults(folder)
    for line in wrong:
        print(line)
    print(f"{pages} pages, {len(wrong)} faults")
    return int(bool(wrong) or not pages)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
