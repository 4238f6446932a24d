"""Shows a net to people: tables, summaries, Caffe's build log, and statistics of Large Model Support.

Start at `summary.py` (layers) and `account.py` (memory).
"""
