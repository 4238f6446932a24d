"""How an element-wise choice is kept in single bits: bit i % 32 of word i // 32 is that of element i, the rest is 0."""

from __future__ import annotations


def bit_words(elements: int) -> int:
    """uint32 words for the bits of so many elements."""
    return -(-elements // 32)
