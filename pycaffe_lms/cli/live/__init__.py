"""What `train` shows while it runs: progress, metrics, event files, curves."""
