"""``--bisect``: the first version of a package that changes a model, by the verdicts of runs."""
