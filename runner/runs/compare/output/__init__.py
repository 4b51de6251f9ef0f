"""A comparison for people and programs: on the console, as Markdown, as JSON."""
