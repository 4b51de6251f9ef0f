"""Parity between environments: their results travel in files."""
