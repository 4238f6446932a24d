"""Table of contents: every file that adds to the table of converters."""

from . import arrangement, images, normalise, pointwise, pooling, products, recurrent

__all__ = ["arrangement", "images", "normalise", "pointwise", "pooling", "products", "recurrent"]
