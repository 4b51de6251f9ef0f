"""For scripts and notebooks: ``compare(model, inputs, compilers=["inductor"])``.

The command line is ``runner.py``; both measure in the same way and make the same records.
"""

from harness.schema import CompilerOptions, Extras, Protocol
from torchduet.api import Result, compare

__all__ = ["CompilerOptions", "Extras", "Protocol", "Result", "compare"]
