"""Download from a local server that serves ranges, breaks off, sends wrong bytes or refuses."""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from pycaffe_lms.data.sets import download as module
from pycaffe_lms.data.sets.download import Checksum, copy, download, is_whole
from pycaffe_lms.errors import DataError, UsageError

CONTENT = np.random.default_rng(7).bytes(300_000)
SHA256 = Checksum(hashlib.sha256(CONTENT).hexdigest())


class Server(ThreadingHTTPServer):
    """Serve one file, and fail as told.

    content: the file. most: bytes per response, after which it hangs up. ranges: whether it serves ranges. codes:
    status codes of the next responses. asked: the Range of every request. length: whether it sends Content-Length.
    """

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.content, self.most, self.ranges, self.codes, self.asked = CONTENT, 1 << 30, True, [], []
        self.length, self.shift = True, 0

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/w.caffemodel"


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_GET(self):
        server, size = self.server, len(self.server.content)
        server.asked.append(self.headers.get("Range"))
        if server.codes:
            self.send_error(server.codes.pop(0))
            return
        found = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "") if server.ranges else None
        start = int(found[1]) if found else 0
        if found and start >= size:
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{size}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if found else 200)
        if found:
            self.send_header("Content-Range", f"bytes {start + server.shift}-{size - 1}/{size}")
        if server.length:
            self.send_header("Content-Length", str(size - start))
        self.end_headers()
        self.wfile.write(server.content[start : start + server.most])


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(module, "_PAUSE_S", 0.0)
    made = Server()
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture
def target(tmp_path):
    return tmp_path / "w.caffemodel"


def _only(target):
    """Check that the target is right and the only file in its folder."""
    return target.read_bytes() == CONTENT and list(target.parent.iterdir()) == [target]


def test_a_whole_file(server, target):
    seen = []
    download(server.url, target, SHA256, progress=lambda done, total: seen.append((done, total)))
    assert _only(target) and server.asked == [None]
    assert seen[-1] == (300_000, 300_000) and is_whole(target, SHA256)


def test_sha1_where_only_that_is_published(server, target):
    download(server.url, target, Checksum(hashlib.sha1(CONTENT).hexdigest()))
    assert _only(target)


def test_it_goes_on_where_the_server_broke_off(server, target):
    server.most = 100_001
    download(server.url, target, SHA256)
    assert _only(target) and server.asked == [None, "bytes=100001-", "bytes=200002-"]


def test_the_next_call_goes_on_too(server, target):
    """The first call gives up; its part is kept, and not requested again. The old file stays until the end."""
    target.write_bytes(b"old")
    server.most = 120_000
    server.codes = []
    real = module._fetch
    calls = []

    def broken(*args):
        calls.append(1)
        if len(calls) == 1:
            return real(*args)
        raise ConnectionResetError("reset by peer")

    module._fetch = broken
    try:
        with pytest.raises(DataError, match="cannot be downloaded: reset by peer; 120000 bytes are there"):
            download(server.url, target, SHA256)
    finally:
        module._fetch = real
    assert target.read_bytes() == b"old" and len(calls) == 1 + module._BREAKS
    server.most = 1 << 30
    download(server.url, target, SHA256)
    assert _only(target) and server.asked == [None, "bytes=120000-"]


def test_a_server_without_ranges(server, target):
    """Every request begins anew: in the end the file is right, or the call gives up."""
    server.ranges, server.most = False, 200_000
    with pytest.raises(DataError, match="the connection broke off; 200000 bytes are there"):
        download(server.url, target, SHA256)
    assert not target.exists()
    server.most = 1 << 30
    download(server.url, target, SHA256)
    assert _only(target)


def test_wrong_bytes_are_not_kept(server, target):
    target.write_bytes(b"old")
    server.content = CONTENT[:-1] + b"!"
    with pytest.raises(DataError, match=f"sha256 [0-9a-f]{{64}} instead of {SHA256.digits}"):
        download(server.url, target, SHA256)
    assert target.read_bytes() == b"old" and list(target.parent.iterdir()) == [target]


def test_a_part_of_something_else_is_found_out(server, target):
    """The file at the address has changed since: the call finds other bytes, and the next call gets it right."""
    server.most, server.codes = 100, []
    part = target.with_name(f".{target.name}.{hashlib.sha256(server.url.encode()).hexdigest()[:12]}.part")
    part.write_bytes(b"x" * 100)
    server.most = 1 << 30
    with pytest.raises(DataError, match="other bytes"):
        download(server.url, target, SHA256)
    assert not part.exists()
    download(server.url, target, SHA256)
    assert _only(target)


@pytest.mark.parametrize("length", [300_000, 300_500])
def test_a_part_that_is_complete_or_too_long(length, server, target):
    """A killed call may leave all bytes; a part with too many bytes is removed."""
    part = target.with_name(f".{target.name}.{hashlib.sha256(server.url.encode()).hexdigest()[:12]}.part")
    part.write_bytes(CONTENT + b"." * (length - 300_000))
    download(server.url, target, SHA256)
    assert _only(target)
    assert server.asked == [f"bytes={length}-"] + [None] * (length > 300_000)


def test_a_part_from_another_place_is_refused(server, target):
    server.most = 100_000
    server.shift = 5
    with pytest.raises(DataError, match="bytes from 100005 on were sent, from 100000 on were asked for"):
        download(server.url, target, SHA256)
    assert not target.exists()


def test_a_server_that_does_not_say_how_much(server, target):
    server.length = False
    download(server.url, target, SHA256)
    assert _only(target)


def test_a_server_that_is_busy_is_asked_again(server, target):
    server.codes = [503, 500]
    download(server.url, target, SHA256)
    assert _only(target) and len(server.asked) == 3


def test_a_missing_file_is_said_at_once(server, target):
    server.codes = [404]
    with pytest.raises(DataError, match="w.caffemodel: the server answers 404"):
        download(server.url, target, SHA256)
    assert len(server.asked) == 1 and not list(target.parent.iterdir())


def test_more_than_weights_can_have_is_refused(server, target, monkeypatch):
    monkeypatch.setattr(module, "MOST_BYTES", 299_999)
    for length in (True, False):
        server.length = length
        with pytest.raises(DataError, match="300000 bytes are more than|more bytes come than"):
            download(server.url, target, SHA256)
        assert not list(target.parent.iterdir())


def test_nobody_there(server, target):
    with pytest.raises(DataError, match="http://127.0.0.1:1/w: cannot be downloaded"):
        download("http://127.0.0.1:1/w", target, SHA256)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://host/w", "w.caffemodel", "http://", ""])
def test_only_http(url, target):
    with pytest.raises(UsageError, match="no address to download from"):
        download(url, target, SHA256)


def test_copy(tmp_path, target):
    source = tmp_path / "source"
    with pytest.raises(DataError, match="source: there is no such file"):
        copy(source, target, SHA256)
    source.write_bytes(CONTENT[1:])
    with pytest.raises(DataError, match="source: these are other bytes"):
        copy(source, target, SHA256)
    assert not target.exists()
    source.write_bytes(CONTENT)
    copy(source, target, SHA256)
    assert target.read_bytes() == CONTENT and len(list(tmp_path.iterdir())) == 2


def test_what_came_from_an_address_that_was_given_up_goes(server, target):
    """The next call removes it, but no part that may still be written to, and none of another file."""
    given_up, going_on, another = (
        target.with_name(f".{name}.part")
        for name in (f"{target.name}.0123456789ab", f"{target.name}.0123456789ac", "else.0123456789ab")
    )
    for path in (given_up, going_on, another):
        path.write_bytes(b"half")
    for path in (given_up, another):
        os.utime(path, (0, time.time() - 2 * 3600))
    download(server.url, target, SHA256)
    assert [path.exists() for path in (given_up, going_on, another)] == [False, True, True]
