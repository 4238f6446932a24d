"""The simulated device: host memory, streams with a clock, pages; no GPU is needed."""
