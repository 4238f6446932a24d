"""The commands, one module each: `build_parser()` returns its parser, `run(args)` does the work."""
