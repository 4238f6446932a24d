"""The command line: one file per action. Results go to stdout, the log to stderr."""
