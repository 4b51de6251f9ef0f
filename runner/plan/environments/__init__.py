"""The Python environments of a run (``--envs``)."""
