"""Turns a prototxt into a running net.

In order: `build/` (message to graph), `passes/` (graph to graph), `program/` (graph to steps), `memory/` (buffers and
plans), `run/` (steps to device work), `inspect/` (tables and logs). Start at `net.py` and `arrangement.py`.
"""
