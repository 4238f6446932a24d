"""Watchers of a training: the display of progress, metrics, event files, curves."""
