"""Collect every layer case of this folder's `test_*.py` files: CASES (any device) and HOST_CASES (the host only)."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

import pytest

import tests.layers

from .case_run import Run
from .cases import Case

_READERS = {
    "test_channels_last",
    "test_gpu",
    "test_every_case",
    "test_every_gradient",
    "test_needs",
    "test_every_remat",
    "test_separate_gradients",
    "test_complete",
}  # they read this file


@cache
def gather(name: str) -> tuple[tuple[str, Case], ...]:
    """Return (id, case) of each list `name`, in the order of the files."""
    middle, found = "" if name == "CASES" else "host-", []
    for module in pkgutil.iter_modules(tests.layers.__path__):
        if module.name.startswith("test_") and module.name not in _READERS:
            try:
                cases = getattr(importlib.import_module(f"tests.layers.{module.name}"), name, ())
            except pytest.skip.Exception:  # an optional library is missing
                continue
            found += [(f"{module.name[5:]}-{middle}{i}-{case.type}", case) for i, case in enumerate(cases)]
    return tuple(found)


def device_cases() -> tuple[tuple[str, Case], ...]:
    return gather("CASES")


def host_cases() -> tuple[tuple[str, Case], ...]:
    return gather("HOST_CASES")


def all_cases() -> tuple[tuple[str, Case], ...]:
    return device_cases() + host_cases()


def runnable_cases() -> tuple[tuple[str, Case], ...]:
    """Return all cases but those whose SOURCE is a file that their own tests write."""
    return tuple((name, case) for name, case in all_cases() if "SOURCE" not in case.text)


@cache
def learning_cases() -> tuple[tuple[str, Case], ...]:
    """Return those runnable cases that have a gradient."""
    return tuple((name, case) for name, case in runnable_cases() if Run(case).learns)


def as_params(cases) -> list:
    return [pytest.param(case, id=name) for name, case in cases]
