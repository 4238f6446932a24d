"""Snapshots: what is in them, when they are written, and how they leave the training loop."""
