"""The part that a layer can play in a chain that runs as one. See net/fusion.py."""

from __future__ import annotations

from enum import Enum


class Role(Enum):
    """CONVOLVE: a convolution of one bottom. NORMALISE: per channel, over all else (BatchNorm). AFFINE: a learned
    factor, and shift, per channel (Scale). ADD: the plain sum of two bottoms (Eltwise). RECTIFY: max(x, 0) (ReLU)."""

    CONVOLVE = "convolve"
    NORMALISE = "normalise"
    AFFINE = "affine"
    ADD = "add"
    RECTIFY = "rectify"
