"""Compares two finished runs: changed speedups, new failures and fixed failures.

load (records) -> Run, Run
pairs (like with like) -> change (statistics) -> RunChanges -> console, Markdown, JSON; gates -> exit code
"""
