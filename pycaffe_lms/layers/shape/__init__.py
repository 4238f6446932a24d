"""Layers that join, cut, move, combine or reduce arrays."""
