"""From graph to graph: memory order, precision, fusion, masks, regions and micro-batches, compression."""
