"""From a prototxt message to a graph: `source.py` reads, filters and inserts splits, `wiring.py` connects layers."""
