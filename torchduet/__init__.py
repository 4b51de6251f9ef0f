"""For scripts and notebooks: ``compare(model, inputs, compilers=["inductor"])``.

The command line is ``runner.py``; both measure in the same way and make the same records.
"""

from torchduet.api import Result, compare

__all__ = ["Result", "compare"]
