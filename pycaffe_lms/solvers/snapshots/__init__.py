"""Writes and restores snapshots of a solver.

`schedule.py` decides when one is written, `snapshot.py` what is in it, `files.py` where it goes. `staging.py` copies
values to host memory while training goes on.
"""
