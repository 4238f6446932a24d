"""Normalise on the CPU."""
