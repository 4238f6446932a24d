"""Layers of MS-CNN and Cascade R-CNN."""
