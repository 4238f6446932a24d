"""Pictures of what a run does. Each needs a drawing library that is imported when it is used."""
