"""A net for people: tables, summaries, logs, its Large Model Support in numbers."""
