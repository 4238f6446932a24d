"""Tables and files that commands print and write: plans, summaries, times, profiles."""
