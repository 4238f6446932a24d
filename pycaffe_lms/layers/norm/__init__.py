"""Normalisation layers: over the batch, over channels, per image."""
