"""Records from databases to batches: cursors, decoding, transformation, prefetch threads, built-in data sets."""
