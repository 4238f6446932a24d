"""Large Model Support: which buffers are managed, a plan of every copy, its independent check, and what obeys it."""
