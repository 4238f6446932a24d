"""From a graph to programs: the steps that forward, backward and updates run, and what they cost."""
