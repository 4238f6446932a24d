"""A simulated device whose memory is exported as NumPy arrays in place of CuPy's.

Work on these arrays runs at once, like work on another stream that the net does not know of."""

from __future__ import annotations

import numpy as np

from pycaffe_lms.backend.sim.device import SimDevice


class _Lent:
    def __init__(self, array, owner):
        self.array, self.owner = array, owner
        self.__array_interface__ = array.__array_interface__


class OpenSim(SimDevice):
    """Counts how often it was waited for."""

    waits = 0

    def synchronize(self):
        self.waits += 1
        super().synchronize()

    def lend(self, span, shape, dtype, owner):
        self.synchronize()
        return np.asarray(_Lent(self.array(span, shape, dtype), owner))
