"""GPU memory as a cache of host memory: the state machine, the shared device pool and the pinned host slab."""
