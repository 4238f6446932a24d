"""Tables and files that commands print: plans, summaries, times, profiles."""
