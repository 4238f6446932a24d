"""Keep an element-wise choice in single bits: bit i % 32 of word i // 32 is that of element i; unused bits are 0."""

from __future__ import annotations


def bit_words(elements: int) -> int:
    """Return how many uint32 words hold one bit for each of `elements` elements."""
    return -(-elements // 32)
