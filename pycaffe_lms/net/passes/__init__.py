"""From graph to graph: orders in memory, precision, fusion, masks, micro-batches."""
