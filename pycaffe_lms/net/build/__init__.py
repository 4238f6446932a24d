"""From a prototxt message to a graph: filter, splits, wiring, which layers run backward."""
