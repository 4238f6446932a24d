"""Simulate a GPU with host memory, streams on a model clock, and pages."""
