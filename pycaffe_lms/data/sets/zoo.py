"""Read the models that come with the package: the files of models/ in one archive, with an index.

`zoo_models` lists them, `write_model` writes one's folder, `find_model` turns a name into the path of a prototxt. The
archive is written by `tools/gen_zoo.py`.
"""

from __future__ import annotations

import difflib
import io
import json
import logging
import os
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ...errors import DataError, UsageError, Where
from ...formats.atomic import atomic_write

_log = logging.getLogger(__name__)
ARCHIVE = Path(__file__).with_name("zoo.tar.xz")
INDEX = "index.json"
HERE = "models"
"""The folder that the models' solvers name, relative to the current one."""


@dataclass(frozen=True)
class ZooNet:
    """Describe a training net of a model.

    Attributes:
        file: name without `.prototxt`.
        parameters: learned values.
        operations: multiply-adds of a forward, as text, such as "3.86 G a picture".
        batch: items of an iteration.
        memory, least: device memory of training without Large Model Support, and the least with it, as text.
        shapes: of what its data layers make in training, by blob.
    """

    file: str
    parameters: int
    operations: str
    batch: int
    memory: str
    least: str
    shapes: dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class ZooModel:
    """Describe a model: its name, what it is for, its training nets (most have one), the names of its files."""

    name: str
    purpose: str
    nets: tuple[ZooNet, ...]
    files: tuple[str, ...]


def read_archive(path: Path = ARCHIVE) -> dict[str, bytes]:
    """Read the archive: {path: content}. Raises: DataError where it is missing or damaged, or Python has no lzma."""
    import tarfile  # late, as `import pycaffe_lms` seldom needs it

    try:
        import lzma  # a Python that was built without liblzma lacks it, and needs it for this alone

        with tarfile.open(fileobj=io.BytesIO(lzma.decompress(path.read_bytes()))) as archive:
            members = ((member.name, archive.extractfile(member)) for member in archive)
            return {name: file.read() for name, file in members if file is not None}
    except ImportError as error:
        fix = "install a Python with the module lzma (build it where liblzma's headers are), or give files"
        raise DataError(f"the models of the package cannot be unpacked: {error}", fix=fix) from error
    except (OSError, EOFError, lzma.LZMAError, tarfile.TarError) as error:
        where = Where(file=str(path))
        raise DataError(f"cannot be read: {error}", where=where, fix="install pycaffe-lms again") from error


@cache
def _archive() -> dict[str, bytes]:
    return read_archive()


@cache
def zoo_models() -> dict[str, ZooModel]:
    """Return the models by name, from the smallest subject to the largest. Raises: DataError as `read_archive`."""
    listed: list[dict[str, Any]] = json.loads(_archive()[INDEX])
    return {
        model["name"]: ZooModel(
            model["name"],
            model["purpose"],
            tuple(ZooNet(**net | {"shapes": {k: tuple(v) for k, v in net["shapes"].items()}}) for net in model["nets"]),
            tuple(sorted(p.partition("/")[2] for p in _archive() if p.startswith(f"{model['name']}/"))),
        )
        for model in listed
    }


def write_model(name: str, out: str | os.PathLike[str] = HERE, *, overwrite: bool = False) -> list[Path]:
    """Write a model's folder, OUT/NAME, so that the paths in it begin at the current folder; return what was written.

    In every file `models/NAME/` becomes `OUT/NAME/`. Files that are there with the same content stay, and so do others,
    such as snapshots.
    Raises: UsageError for another name; DataError for files that are there and differ (unless `overwrite`).
    """
    model = zoo_models().get(name)
    if model is None:
        raise unknown_model(name)
    folder = Path(out, name)
    content = {folder / file: _with_paths(name, file, out) for file in model.files}
    changed = [path for path, data in content.items() if not path.is_file() or path.read_bytes() != data]
    others = [path for path in changed if os.path.lexists(path)]
    if others and not overwrite:
        raise DataError(
            f"is there already and differs from the model {name} of this version",
            where=Where(file=str(others[0])),
            fix="work with it as it is, replace it with -overwrite (overwrite=True), or choose another folder (-out)",
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"the folder cannot be made: {error.strerror}",
            where=Where(file=str(folder)),
            fix="check the path and the permissions; PYCAFFE_LMS_CACHE is the folder that the package itself writes to",
        ) from error
    for path in changed:
        atomic_write(path, content[path], error=DataError)
    return changed


def _with_paths(name: str, file: str, out: str | os.PathLike[str]) -> bytes:
    """Return a file's content for a model that lies in OUT/NAME."""
    content, place = _archive()[f"{name}/{file}"], Path(out).as_posix()
    if place == HERE:
        return content
    if file.endswith(".prototxt"):
        place = place.replace("\\", "\\\\").replace('"', '\\"')
    path = re.compile(rf"(?<![\w./-]){HERE}/(?={re.escape(name)}/)")
    return path.sub(lambda _: place + "/", content.decode()).encode()


def find_model(text: str, file: str = "train_val", *, here: bool = False) -> str:
    """Return the path of the prototxt that `text` means: a file, or a model of the zoo.

    NAME means the model's file `file`, NAME/FILE another file of it, with or without `.prototxt`. The model is taken
    from the folder `models` of the current folder if it is there, else from the package, by way of the cache folder.

    Args:
        file: train_val, solver or deploy.
        here: write the model's folder to models/NAME where it is missing, for commands that write beside it.
    Raises: UsageError for a folder, and for a name that is neither a file nor of the zoo, with the nearest ones;
    DataError for a path models/NAME/FILE of the zoo that was not written here. Another path that does not exist is
    returned as it is, for its reader to report.
    """
    if os.path.lexists(text) and not os.path.isdir(text):
        return text
    if text.startswith(f"{HERE}/") and text.removeprefix(f"{HERE}/") in _archive():
        name, _, wanted = text.removeprefix(f"{HERE}/").partition("/")
        short = name if wanted == f"{file}.prototxt" else f"{name}/{wanted.removesuffix('.prototxt')}"
        fix = f"write it with `pycaffe-lms zoo get {name}`, or give the model's name: {short}"
        raise DataError(f"Could not open file {text}; it is a model of the zoo", fix=fix)
    name, _, rest = text.partition("/")
    if name not in zoo_models():
        if os.path.isdir(text):
            found = sorted(path.name for path in Path(text).glob("*.prototxt"))
            fix = f"name the file in it: {', '.join(found[:6])}" if found else "name a prototxt, or a model of the zoo"
            raise UsageError(f'"{text}" is a folder, not a prototxt', fix=fix)
        if not text or Path(text).suffix or (rest and (os.path.isdir(name) or not _near(name))):
            return text
        raise unknown_model(text, "neither a file nor a model of the zoo")
    wanted = f"{(rest or file).removesuffix('.prototxt')}.prototxt"
    files = [f for f in zoo_models()[name].files if f.endswith(".prototxt")]
    if wanted not in files and not os.path.exists(Path(HERE, name, wanted)):
        names = [f"{name}/{f.removesuffix('.prototxt')}" for f in files]
        raise UsageError(f"the model {name} has no {wanted}", fix=f"give one of {', '.join(names)}")
    path = Path(HERE, name, wanted)
    if not path.exists():
        folder = Path(HERE) if here else _cache()
        if write_model(name, folder, overwrite=not here) and here:
            _log.info("Wrote the folder %s.", Path(folder, name))
        path = folder / name / wanted
    _log.info('"%s" of the zoo is %s.', text, path)
    return str(path)


def model_shapes(text: str, path: str) -> list[str]:
    """Return the shapes of a zoo net's data, as BLOB=N,C,H,W, so that no data are needed; [] where they are not known.

    text, path: as `find_model` took and returned them; the file must be as the package has it.
    """
    name, wanted = text.partition("/")[0], Path(path).name
    nets: Sequence[ZooNet] = zoo_models()[name].nets if text != path and name in zoo_models() else ()
    for net in nets:
        if wanted == f"{net.file}.prototxt" and Path(path).read_bytes() == _archive()[f"{name}/{wanted}"]:
            return [f"{blob}={','.join(map(str, shape))}" for blob, shape in net.shapes.items()]
    return []


def unknown_model(name: str, what: str = "not a model of the zoo") -> UsageError:
    """Return the error for a name that the zoo does not have."""
    near = _near(name.partition("/")[0])
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return UsageError(
        f'"{name}" is {what}{hint}', fix="`pycaffe-lms zoo` lists the models; a file needs its whole name"
    )


def _near(name: str) -> list[str]:
    return difflib.get_close_matches(name.lower(), zoo_models(), n=3)


def _cache() -> Path:
    """Return the folder of this version's models in the cache."""
    from .known_weights import cache_folder  # late: it imports what downloads

    content = b"".join(_archive().values())
    return cache_folder() / "zoo" / f"{zlib.crc32(content):08x}"
