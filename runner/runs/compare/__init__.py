"""Compares two finished runs: changed speedups, new failures and fixed failures.

run (records, like with like) -> changes (statistics) -> views (console, Markdown, JSON), gates (exit code)
"""
