"""Layers of object detection: boxes and regions of interest."""
