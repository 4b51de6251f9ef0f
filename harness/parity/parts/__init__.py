"""Parts of the check: every part of a model must count, and the errors of a lower precision."""
