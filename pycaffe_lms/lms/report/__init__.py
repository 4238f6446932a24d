"""Report plans: tables of text, and an HTML page."""
