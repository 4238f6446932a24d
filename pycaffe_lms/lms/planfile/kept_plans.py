"""Keep plans of large programs in the cache folder, so that the next start of a training does not search again.

A file per search, named by the SHA-256 of all that the search depends on, its own source included. It holds a line of
JSON, then the plan as in a plan file, in protobuf's binary form; of a search that found none, what it raised. What is
read is checked as a plan file is. Pages of `plan` are kept elsewhere: see `cli/views/answer_cache.py`.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sys
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, fields, is_dataclass, replace
from enum import Enum
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy
from google.protobuf.message import DecodeError

from ...errors import OutOfDeviceMemory, PlanError, Where, human_bytes
from ...formats.cache_folder import cache_folder, lasts
from ...formats.kept_files import KeptFiles
from ...proto import caffe_pb2
from ...version import __version__
from ..config import LMSConfig
from ..cost.timing import time_plan
from ..plan.plan import Plan
from ..planner.choose import choose_plan, fixed_ahead
from ..planner.optimise import NotFaster
from ..remat.requested import check_uncopied
from ..request import PlanRequest
from ..rules import SEARCH, SWAP, Rules, SearchBudget
from .read import FileProgram, plan_from
from .write import program_message

_log = logging.getLogger(__name__)
LEAST_STEPS = 150  # programs of fewer steps are planned in about a tenth of a second: looking would not pay
FOLDER = "found_plans"  # in the cache folder
_FILES = 500  # searches kept, of 10 to 50 KB each; the oldest are removed


def kept_plan(
    request: PlanRequest,
    config: LMSConfig,
    limit: int,
    page: int | None = None,
    search: SearchBudget = SEARCH,
    *,
    on_demand: bool = True,
) -> Plan:
    """Return what `choose_plan` returns, or raise what it raises: as the cache folder knows it, else by a search.

    Plans of small programs, those with fixed look-ahead, and with `-cache off` all are always made here.
    """
    find = partial(choose_plan, request, config, limit, page, search, on_demand=on_demand)
    if len(request.program.steps) < LEAST_STEPS or fixed_ahead(config) is not None or not lasts():
        return find()
    files, key = _files(cache_folder() / FOLDER), key_of(request, config, limit, page, search, on_demand)
    known = files.read(key, partial(_parse, key, request, limit, page, search))
    if isinstance(known, Plan):
        _tell(request.program.name, files.path(key))
        return known
    if known is not None:
        raise known
    try:
        plan = find()
    except (NotFaster, OutOfDeviceMemory) as refused:
        files.write(key, _written(key, {"refused": _refusal(refused)}))
        raise
    about = {"rules": plan.rules, "how": _as_json(plan.how), "live_bytes": plan.live_bytes}
    files.write(key, _written(key, about, program_message(plan).SerializeToString()))
    return plan


@cache
def _files(folder: Path) -> KeptFiles:
    """Return the files of a folder: one object a process, since it warns once."""
    return KeptFiles(folder, ".plan.gz", _FILES, "plans of Large Model Support are")


@cache
def _tell(program: str, path: Path) -> None:
    """Log that a plan is read; once, where its program is planned again and again."""
    _log.info("LMS: the plan of %s is read from %s, where an earlier search left it.", program, path)


# -- the name of a search ----------------------------------------------------------------------------------------------
def key_of(*asked: Any) -> str:
    """Return a name for a search by its arguments, in hexadecimal digits: another where any part of them differs, or
    the source that searches."""
    return hashlib.sha256(repr((_plain(asked), code())).encode()).hexdigest()


def _plain(value: Any) -> Any:
    """Return a value as nested tuples whose text is the same in every process.

    The order of a mapping counts, since a search may follow it; that of a set does not. Raises TypeError.
    """
    if value is None or type(value) in (int, str, bool, float):
        return value
    if isinstance(value, Enum):
        return type(value).__name__, value.name
    if is_dataclass(value):
        return type(value).__name__, *(_plain(getattr(value, f.name)) for f in fields(value))
    if isinstance(value, Mapping):
        return "mapping", *((_plain(k), _plain(v)) for k, v in value.items())
    if isinstance(value, Set):
        return "set", *sorted(map(_plain, value))
    if isinstance(value, Sequence):
        return "sequence", *map(_plain, value)
    if isinstance(value, numpy.generic):
        return value.item()
    raise TypeError(f"a search depends on {value!r}, which has no name")


@cache
def code() -> str:
    """Return a digest of all that plans are made by: the source of `lms`, and what runs it."""
    return source_digest(Path(__file__).parents[1], __version__, sys.version, numpy.__version__)


def source_digest(root: Path, *more: str) -> str:
    """Return a digest of the names and contents of all Python files in a folder, and of some texts."""
    digest = hashlib.sha256(repr(more).encode())
    for path in sorted(root.rglob("*.py")):
        content = path.read_bytes()
        digest.update(repr((path.relative_to(root).parts, len(content))).encode() + content)
    return digest.hexdigest()


# -- what is in a file -------------------------------------------------------------------------------------------------
def _written(key: str, about: dict[str, Any], message: bytes = b"") -> bytes:
    return json.dumps({"key": key} | about).encode() + b"\n" + message


def _as_json(rules: Rules | None) -> dict[str, Any] | None:
    return None if rules is None else asdict(rules)


def _refusal(refused: NotFaster | OutOfDeviceMemory) -> dict[str, Any]:
    """Return an error for JSON; `_refused` makes it again."""
    if isinstance(refused, NotFaster):
        return {}
    numbers = {"needed": refused.needed, "free": refused.free}
    return numbers | {"message": refused.message, "where": asdict(refused.where), "fix": refused.fix}


def _refused(written: dict[str, Any]) -> NotFaster | OutOfDeviceMemory:
    if not written:
        return NotFaster()
    needed, free = int(written["needed"]), int(written["free"])
    where = Where(**written["where"])
    return OutOfDeviceMemory(str(written["message"]), needed=needed, free=free, where=where, fix=written["fix"])


def _parse(
    key: str, request: PlanRequest, limit: int, page: int | None, search: SearchBudget, content: bytes
) -> Plan | NotFaster | OutOfDeviceMemory:
    """Return what the file of a search holds, a plan verified. Raises ValueError."""
    line, _, message = content.partition(b"\n")
    about = json.loads(line)
    try:
        if about["key"] != key:
            raise ValueError("it is of another search")
        if "refused" in about:
            return _refused(about["refused"])
        written = FileProgram(caffe_pb2.LMSProgramPlan.FromString(message), "", None, {})
        plan = plan_from(written, request.program, request.buffers, request.remats, request.scratch, page)
        check_uncopied(plan, request.requested)
        if plan.arena_bytes > limit:
            raise ValueError(f"its plan takes {human_bytes(plan.arena_bytes)}, {human_bytes(max(0, limit))} are there")
        how = next(r for r in (None, request.first, *search.long, *search.auto, *SWAP) if about["how"] == _as_json(r))
        times = time_plan(plan, request.costs)
        return replace(
            plan,
            seconds=times.seconds,
            stall=times.stall,
            rules=str(about["rules"]),
            how=how,
            live_bytes=int(about["live_bytes"]),
        )
    except PlanError as error:
        raise ValueError(error.message) from None
    except (KeyError, TypeError, OverflowError, StopIteration, DecodeError) as error:
        raise ValueError(f"it is no plan: {error!r}") from None
