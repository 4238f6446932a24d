"""Draw nets, and what a run does; drawing libraries are imported when they are used."""
