"""Normalisations, on the CPU."""
