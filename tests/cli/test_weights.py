"""`weights get`: from a server, from a file, from the cache; and that the table names what is published."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from pycaffe_lms.cli.commands import weights as command
from pycaffe_lms.cli.main import main
from pycaffe_lms.data.sets.download import Checksum
from pycaffe_lms.data.sets.known_weights import WEIGHTS, Weights, cache_folder

from ..data.test_download import CONTENT, SHA256, server  # noqa: F401  a fixture
from ..shared_data import SHARED, needs_shared


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "made" / "cache"
    monkeypatch.setenv("PYCAFFE_LMS_CACHE", str(folder))
    monkeypatch.setitem(WEIGHTS, "small", Weights("for tests", "w.caffemodel", SHA256))
    return folder


def _get(capsys, *argv):
    code = main(["weights", "get", *argv])
    said = capsys.readouterr()
    return code, said.out.strip(), said.err


@pytest.mark.parametrize("file", [False, True])
def test_from_a_mirror(file, server, cache, capsys):  # noqa: F811
    """The address of the file, or of its folder; the second time it is there already."""
    mirror = server.url if file else server.url.rpartition("/")[0]
    code, path, log = _get(capsys, "small", "-mirror", mirror)
    assert (code, path) == (0, str(cache / "w.caffemodel")) and f"Downloading {server.url}" in log
    assert "293.0 KiB of 293.0 KiB" in log and Path(path).read_bytes() == CONTENT
    assert _get(capsys, "small")[:2] == (0, path) and len(server.asked) == 1


def test_a_file_in_the_cache_that_is_damaged_is_got_again(server, cache, capsys):  # noqa: F811
    cache.mkdir(parents=True)
    (cache / "w.caffemodel").write_bytes(CONTENT[:-1])
    assert _get(capsys, "small")[0] == 2
    assert _get(capsys, "small", "-mirror", server.url)[0] == 0
    assert (cache / "w.caffemodel").read_bytes() == CONTENT


def test_from_its_publisher(server, cache, capsys, monkeypatch):  # noqa: F811
    monkeypatch.setitem(WEIGHTS, "small", Weights("for tests", "w.caffemodel", SHA256, server.url))
    assert _get(capsys, "small")[0] == 0


def test_from_a_file(cache, tmp_path, capsys):
    (tmp_path / "any.name").write_bytes(CONTENT)
    code, path, _ = _get(capsys, "small", "-from", str(tmp_path / "any.name"))
    assert code == 0 and Path(path) == cache / "w.caffemodel" and Path(path).read_bytes() == CONTENT


def test_what_cannot_be(cache, tmp_path, capsys):
    code, out, log = _get(capsys, "small")
    assert code == 2 and not out and "no address of small is known" in log and "-mirror" in log
    assert _get(capsys, "small", "-from", "a", "-mirror", "http://b/c")[0] == 2
    assert _get(capsys, "lenett")[0] == 2
    code, _, log = _get(capsys, "small", "-from", str(tmp_path / "none"))
    assert code == 1 and "there is no such file" in log
    cache.parent.mkdir(exist_ok=True)
    cache.rmdir()
    cache.write_text("a file")
    code, _, log = _get(capsys, "small", "-from", str(tmp_path / "none"))
    assert code == 1 and "the folder cannot be made" in log and "PYCAFFE_LMS_CACHE" in log


def test_the_cache_is_where_the_system_keeps_such_things(monkeypatch):
    monkeypatch.delenv("PYCAFFE_LMS_CACHE")
    monkeypatch.setattr(Path, "home", lambda: Path("/home/someone"))
    assert cache_folder() == Path("/home/someone/.cache/pycaffe_lms")


def test_a_line_per_tenth(caplog):
    caplog.set_level("INFO")
    times = iter(range(0, 100, 4))  # four seconds for each tenth
    lines = command._Lines(lambda: next(times))
    for k in range(1, 101):
        lines(k << 20, 100 << 20)
    assert [r.getMessage() for r in caplog.records] == [f"{10 * k}.0 MiB of 100.0 MiB, 2.5 MiB/s" for k in range(1, 11)]


def test_a_download_that_starts_anew_tells_no_rate(caplog):
    caplog.set_level("INFO")
    times = iter(range(10))
    lines = command._Lines(lambda: next(times))
    for done in (80 << 20, 1 << 20, 81 << 20):
        lines(done, None)
    assert [r.getMessage() for r in caplog.records] == ["80.0 MiB, 80.0 MiB/s", "1.0 MiB", "81.0 MiB, 80.0 MiB/s"]


def test_the_table():
    del WEIGHTS["small"]
    assert all(re.fullmatch("[0-9a-f]{40}|[0-9a-f]{64}", w.checksum.digits) for w in WEIGHTS.values())
    assert all(not w.url or w.url.endswith("/" + w.file) for w in WEIGHTS.values())
    assert len({w.file for w in WEIGHTS.values()}) == len(WEIGHTS)


def test_a_readme_of_the_zoo_says_how_to_get_each_of_them():
    """With -from where no address is known; and whose names the file has, but for small nets of many copies."""
    del WEIGHTS["small"]
    folder = Path(__file__).resolve().parents[2] / "models"
    readmes = [p.read_text() for p in folder.glob("*/README.md")]
    for name, weights in WEIGHTS.items():
        if name in ("cifar10_quick_4000", "mtcnn_det1"):  # no README's first choice; of a net that is not here
            continue
        (readme,) = [
            text
            for text in readmes
            if f"`pycaffe-lms weights get {name}{'' if weights.url else ' -from FILE'}`" in text
        ]
        assert weights.file in readme or name in ("lenet", "cifar10_quick"), name


@needs_shared
@pytest.mark.shared
def test_the_checksums_are_those_of_the_real_files():
    files = {p.name: p for p in (SHARED / "data" / "weights").rglob("*.caffemodel")}
    known = {w.file: w.checksum for w in WEIGHTS.values() if w.file in files}
    assert set(known) == set(files)
    for name, checksum in known.items():
        assert checksum == Checksum(hashlib.sha256(files[name].read_bytes()).hexdigest()), name
