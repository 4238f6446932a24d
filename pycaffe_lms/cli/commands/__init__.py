"""The commands, one module each: `run(argv)`."""
