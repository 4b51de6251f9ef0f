"""Small loops that are divided among threads."""

from __future__ import annotations

from runner.runs.why.looked import Looked

NAME = "threads"
SENTENCE = "Generated loops are too small for the threads that share them."
SETTINGS = ("cpp.threads=1",)


def signature(looked: Looked) -> str:
    threads = looked.record.environment.get("threads")
    several = isinstance(threads, int) and threads > 1 and looked.record.job.device == "cpu"
    return f"{threads} threads" if several and looked.signs else ""
