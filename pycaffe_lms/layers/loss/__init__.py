"""Losses, and accuracy."""
