"""LMDB and LevelDB: records, sources, writers."""
