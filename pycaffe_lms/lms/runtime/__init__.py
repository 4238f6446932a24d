"""Run plans: device memory, streams, events, CUDA graphs, counters."""
