"""Owns a net's memory: assigns its buffers, picks those that LMS manages, and makes the net fit its device.

Start at `net_memory.py`.
"""
