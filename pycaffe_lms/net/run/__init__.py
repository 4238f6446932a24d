"""Runs a net's programs, step by step or by replaying a CUDA graph, with callbacks.

Start at `executor.py` (one step), then `recording.py` (a whole program).
"""
