"""Verdicts: the variation between processes, the guard against dependence, and the decision."""
