"""From a graph to programs: the steps of forward, backward and updates, and their costs.

`steps.py` makes the steps of one layer, `programs.py` orders them, `buffer_views.py` and `step_order.py` rewrite them,
`split_backward.py` picks between two programs.
"""
