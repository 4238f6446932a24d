"""Keep from run to run which engine was chosen for a convolution, and the built engine: a file per choice.

The files of a GPU model and of versions of cuDNN and its frontend lie in a folder of their own inside the cache folder.
They appear whole or not at all and hold their own check sum, so several processes may use one folder. A file that is
absent, damaged or not writable costs time and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import tempfile
import threading
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

from ....formats.cache_folder import OFF, cache_folder, use_cache_folder

_log = logging.getLogger(__name__)
_FORMAT = 2


@dataclass(frozen=True, slots=True)
class Choice:
    """Hold what was chosen: cuDNN's name of an engine, its bytes of workspace, and the engine as cuDNN writes it.

    plan: b"" where cuDNN cannot write it. refused: cuDNN's reason, where it has no engine.
    """

    name: str
    workspace_bytes: int = 0
    plan: bytes = b""
    refused: str = ""


class Store:
    """Keep choices by a text that describes the convolution."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[str, Choice] = {}
        self._warned = self._told = False  # that choices are not kept; that the folder cannot be locked
        self._entering, self._inside = threading.Lock(), ExitStack()
        self._count = 0  # of those within `alone`

    def get(self, key: str) -> Choice | None:
        """Return what was chosen, None where nothing is known."""
        if key not in self._known:
            found = _read(self._path(key), key)
            if found is None:
                return None
            self._known[key] = found
        return self._known[key]

    def put(self, key: str, choice: Choice) -> None:
        """Keep a choice."""
        self._known[key] = choice
        head = {"format": _FORMAT, "key": key, "name": choice.name, "workspace_bytes": choice.workspace_bytes}
        content = json.dumps(head | {"refused": choice.refused}).encode() + b"\n" + choice.plan
        try:
            _replace(self._path(key), _sum(content) + b"\n" + content)
        except OSError as error:  # the disk is full
            if not self._warned:
                _log.warning("Engines of convolutions are not kept for later runs: %s", error)
            self._warned = True

    def forget(self, key: str) -> None:
        """Drop a choice that turned out to be of no use."""
        self._known.pop(key, None)
        self._path(key).unlink(missing_ok=True)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Within: no other process is within `alone` of this folder, where the system can lock files.

        Threads of this process may be, and one may enter it again.
        """
        with self._entering:
            if not self._count:
                self._inside.enter_context(self._locked())
            self._count += 1
        try:
            yield
        finally:
            with self._entering:
                self._count -= 1
                if not self._count:
                    self._inside.close()

    def _locked(self) -> AbstractContextManager[object]:
        """Return the folder's lock file, locked until it is closed."""
        file: AbstractContextManager[object] = nullcontext()
        try:
            file = opened = (self.folder / "lock").open("ab")
            if fcntl is not None:
                fcntl.flock(opened, fcntl.LOCK_EX)
        except OSError as error:  # some network file systems, or the folder is gone
            text = "%s cannot be locked (%s): processes that start at once may choose different engines"
            _log.log(logging.DEBUG if self._told else logging.WARNING, text, self.folder, error)
            self._told = True
        return file

    @contextmanager
    def turn(self, name: str, wait: bool) -> Iterator[bool]:
        """Within: no other process has the turn of this name. Yields False instead where one has it, unless `wait`.

        Where the system cannot lock files all have it.
        """
        mine = True
        with ExitStack() as inside:
            try:
                file = inside.enter_context((self.folder / "turns").open("ab"))
                if fcntl is not None:
                    fcntl.lockf(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB), 1, zlib.crc32(name.encode()))
            except BlockingIOError:
                mine = False
            except OSError as error:
                _log.debug("%s cannot be locked (%s)", self.folder, error)
            yield mine

    def _path(self, key: str) -> Path:
        return self.folder / f"{hashlib.sha256(key.encode()).hexdigest()[:40]}.engine"


def open_store(gpu: str, cudnn_version: int, frontend_version: str) -> Store:
    """Return the store of a GPU model and the versions of cuDNN and its frontend.

    Where the cache folder cannot be written to, it lies in one that is removed when this process ends.
    """
    name = re.sub(r"[^A-Za-z0-9]+", "-", f"{gpu} {cudnn_version} {frontend_version}").strip("-").lower()
    folder = cache_folder() / "engines" / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        text = "Engines of convolutions are not kept for later runs: %s; -cache DIR names a folder, -cache off none"
        _log.warning(text, error)
        use_cache_folder(OFF)
        folder = cache_folder() / "engines" / name
        folder.mkdir(parents=True, exist_ok=True)
    return Store(folder)


def _sum(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


def _read(path: Path, key: str) -> Choice | None:
    try:
        total, _, content = path.read_bytes().partition(b"\n")
    except OSError:
        return None
    head, _, plan = content.partition(b"\n")
    if total != _sum(content):
        _log.warning("%s is damaged and not used: the engine is chosen again.", path)
        return None
    said = json.loads(head)
    if said["format"] != _FORMAT or said["key"] != key:
        return None
    return Choice(said["name"], said["workspace_bytes"], plan, said["refused"])


def _replace(path: Path, content: bytes) -> None:
    """Write a file so that a reader finds the old content or the new one, never a part."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise
