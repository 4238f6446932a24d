"""Plans for people: tables of text, and an HTML page."""
