"""tools/check_site.py finds what a site loads from the web, and links that lead nowhere."""

from __future__ import annotations

import pytest

from .pages import ROOT

GOOD = '<link rel="stylesheet" href="a.css"><a href="b.html#there">b</a><a href="https://example.org">web</a>'


@pytest.fixture
def check(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import check_site

    def check(page, css=""):
        (tmp_path / "a.html").write_text(page)
        (tmp_path / "b.html").write_text('<h1 id="there">b</h1>')
        (tmp_path / "a.css").write_text(css)
        check_site.read.cache_clear()
        return check_site.faults(tmp_path)

    return check


def test_a_whole_site_has_no_faults(check):
    assert check(GOOD) == []


@pytest.mark.parametrize(
    ("page", "fault"),
    [
        ('<script src="https://cdn.example.org/x.js"></script>', "a.html loads https://cdn.example.org/x.js"),
        ('<img src="//example.org/x.png">', "a.html loads //example.org/x.png"),
        ('<link rel="preconnect" href="https://fonts.example.org">', "a.html loads https://fonts.example.org"),
        ('<a href="c.html">c</a>', "a.html links to c.html, which is not there"),
        ('<img src="c.png">', "a.html links to c.png, which is not there"),
        ('<a href="b.html#here">b</a>', "a.html links to b.html#here, which has no such anchor"),
        ('<a href="#here">b</a>', "a.html links to #here, which has no such anchor"),
        ('<pre class="literal-block">x</pre>', "a.html has 1 blocks of code without the style of code"),
    ],
)
def test_faults(check, page, fault):
    assert check(page) == [fault]


def test_fonts_of_the_web_in_a_style_sheet(check):
    assert check(GOOD, "@font-face { src: url('https://fonts.example.org/x.woff2') }") == [
        "a.css loads https://fonts.example.org/x.woff2"
    ]


def test_an_empty_folder_is_no_site(check, tmp_path, capsys):
    import check_site

    (tmp_path / "empty").mkdir()
    assert check_site.main([str(tmp_path / "empty")]) == 1
