"""Updates of parameters: the step itself, histories, and how several ranks share both."""
