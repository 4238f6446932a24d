"""Download a file over HTTP: resumed where it broke off, checked, and at its place whole or not at all."""

from __future__ import annotations

import glob
import hashlib
import http.client
import os
import re
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ...errors import DataError, UsageError, Where
from ...formats.atomic import atomic_write

Progress = Callable[[int, "int | None"], None]
"""Called with the bytes received so far and the bytes in all, None where the server does not say."""
MOST_BYTES = 2 << 30  # no .caffemodel is larger: protobuf's own limit
_BLOCK = 1 << 20
_BREAKS = 5  # broken connections in a row without a new byte
_TIMEOUT_S = 30.0
_PAUSE_S = 1.0  # times the broken connections so far
_ABANDONED_S = 3600.0  # since the last byte; a run gives up long before
_ALGORITHMS = {40: "sha1", 64: "sha256"}  # by the number of digits


@dataclass(frozen=True)
class Checksum:
    """Hold the digits of a SHA-256, or of a SHA-1 where nothing better is published."""

    digits: str

    @property
    def algorithm(self) -> str:
        return _ALGORITHMS[len(self.digits)]

    def of(self, path: Path) -> str:
        """Return the checksum of a file by the same algorithm."""
        found = hashlib.new(self.algorithm, usedforsecurity=False)
        with open(path, "rb") as file:
            while block := file.read(_BLOCK):
                found.update(block)
        return found.hexdigest()


def is_whole(path: Path, checksum: Checksum) -> bool:
    """Return whether the file exists and has this checksum."""
    return path.is_file() and checksum.of(path) == checksum.digits


def copy(source: Path, target: Path, checksum: Checksum) -> None:
    """Copy a file that must have this checksum. Raises: DataError; `target` is then as it was."""
    if not source.is_file():
        raise DataError("there is no such file", where=Where(file=str(source)))
    _check(source, checksum, str(source), fix="get the file that the name stands for")
    atomic_write(target, lambda part: _copied(source, part), error=DataError)


def _copied(source: Path, part: Path) -> None:
    shutil.copyfile(source, part)


def download(url: str, target: Path, checksum: Checksum, *, progress: Progress = lambda done, total: None) -> None:
    """Download `url` to `target`, whose folder must exist, resuming an earlier call that broke off.

    Parts downloaded from other addresses are removed once they have not been written to for an hour.
    Raises: UsageError for a url that is not http or https; DataError where the server cannot be reached, stops in the
    middle (the part so far is kept for the next call) or sends other bytes (nothing is kept).
    """
    if not re.match(r"https?://[^/]", url):
        raise UsageError(f"{url} is no address to download from", fix="give one that begins with http:// or https://")
    part = target.with_name(f".{target.name}.{hashlib.sha256(url.encode()).hexdigest()[:12]}.part")
    _remove_others(part, target)
    breaks = 0
    while True:
        before = part.stat().st_size if part.exists() else 0
        try:
            if _fetch(url, part, before, progress):
                break
            reason = "the connection broke off"
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, urllib.error.HTTPError) and error.code < 500:
                raise DataError(
                    f"the server answers {error.code} {error.reason}", where=Where(file=url), fix="check the address"
                ) from error
            reason = str(getattr(error, "reason", error)) or type(error).__name__
        except DataError:
            part.unlink(missing_ok=True)
            raise
        now = part.stat().st_size if part.exists() else 0
        breaks = 0 if now > before else breaks + 1
        if breaks == _BREAKS:
            raise DataError(
                f"cannot be downloaded: {reason}; {now} bytes are there",
                where=Where(file=url),
                fix="try again later: it goes on from there; or use -mirror or -from",
            )
        time.sleep(_PAUSE_S * breaks)
    try:
        _check(part, checksum, url, fix="try again, or get it from elsewhere with -mirror or -from")
        with open(part, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(part, target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _remove_others(part: Path, target: Path) -> None:
    """Remove parts of the same file from other addresses that ended runs left."""
    for other in target.parent.glob(f".{glob.escape(target.name)}.*.part"):
        with suppress(FileNotFoundError):  # another run removed it
            if other != part and time.time() - other.stat().st_mtime > _ABANDONED_S:
                other.unlink()


def _check(path: Path, checksum: Checksum, name: str, fix: str) -> None:
    found = checksum.of(path)
    if found != checksum.digits:
        raise DataError(
            f"these are other bytes: {checksum.algorithm} {found} instead of {checksum.digits}",
            where=Where(file=name),
            fix=fix,
        )


def _fetch(url: str, part: Path, done: int, progress: Progress) -> bool:
    """Request the file from byte `done` on; return whether all bytes have come."""
    request = urllib.request.Request(url, headers={"Range": f"bytes={done}-"} if done else {})
    try:
        response = urllib.request.urlopen(request, timeout=_TIMEOUT_S)
    except urllib.error.HTTPError as error:
        if error.code != 416 or not done:
            raise
        error.close()  # there are no bytes from `done` on: the part is complete, or of something else
        whole = re.fullmatch(r"bytes \*/(\d+)", error.headers.get("Content-Range") or "")
        if whole and int(whole[1]) == done:
            return True
        part.unlink()
        return False
    with response:
        start, total = _place(response)
        if start not in (0, done):
            raise http.client.HTTPException(f"bytes from {start} on were sent, from {done} on were asked for")
        if (total or 0) > MOST_BYTES:
            raise DataError(f"{total} bytes are more than weights can have", where=Where(file=url))
        with open(part, "ab" if start else "wb") as file:
            return _receive(response, file, start, total, url, progress)


def _place(response: http.client.HTTPResponse) -> tuple[int, int | None]:
    """Return the byte at which a response begins, and the number of bytes in all, None where it is unknown."""
    length = response.headers.get("Content-Length")
    if response.status != 206:
        return 0, int(length) if length and length.isdigit() else None
    found = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range") or "")
    if not found:
        raise http.client.HTTPException("a part was sent that does not say which")
    return int(found[1]), None if found[2] == "*" else int(found[2])


def _receive(
    response: http.client.HTTPResponse, file: IO[bytes], done: int, total: int | None, url: str, progress: Progress
) -> bool:
    """Append a response to a part of `done` bytes; return whether all bytes have come."""
    while True:
        try:
            block = response.read(_BLOCK)
        except http.client.IncompleteRead as error:
            file.write(error.partial)
            return False
        if not block:
            return total is None or done == total
        done += len(block)
        if done > (MOST_BYTES if total is None else total):
            raise DataError("more bytes come than there should be", where=Where(file=url))
        file.write(block)
        progress(done, total)
