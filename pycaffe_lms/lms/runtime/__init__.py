"""What runs a plan: device memory, streams, events, CUDA graphs, counters."""
