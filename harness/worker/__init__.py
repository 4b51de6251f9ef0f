"""The worker process, which answers the runner's calls."""

KIND = "DUET_WORKER"
"""Environment variable: how ``host`` started the worker, "fresh" or "forked"."""

WHY_FRESH = "DUET_WHY_FRESH"
"""Environment variable: why a forked worker was replaced by a new interpreter; a sentence."""
