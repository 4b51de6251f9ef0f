"""The start-up race, and the streams of changing shapes."""
