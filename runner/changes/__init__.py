"""Two finished runs, held against each other: what became faster or slower, what broke, what was mended.

load (records, the field's CSV, an expected file) -> Run, Run
pairs (like with like) -> change (statistics) -> Changes -> console, Markdown, JSON; gates -> exit code
"""
