"""Turn records of databases and files into batches: cursors, decoding, transformation, prefetching, data sets."""
