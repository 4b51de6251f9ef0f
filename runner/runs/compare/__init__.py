"""Compares two finished runs: changed speedups, new failures and fixed failures.

load (records, the field's CSV, an expected file) -> Run, Run
pairs (like with like) -> change (statistics) -> RunChanges -> console, Markdown, JSON; gates -> exit code
"""
