"""Where nets run: the CPU, the simulated device, and that with everything under Large Model Support."""

import pytest

from .nets import Place


@pytest.fixture(params=["cpu", "sim", "lms"])
def place(request) -> Place:
    return Place(request.param)
