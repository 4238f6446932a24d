"""Read and write LMDB and LevelDB databases, and the records in them."""
