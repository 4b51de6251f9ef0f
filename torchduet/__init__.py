"""For scripts and notebooks: ``compare(model, inputs, compilers=["inductor"])``.

The command line is ``runner.py``. Both use the same method and make the same records.
"""

from torchduet.names import check_names

check_names()  # before the imports that another module of the same name would break

from harness.schema import CompilerOptions, Extras, Protocol
from torchduet.api import compare
from torchduet.frames import Frames, load
from torchduet.result import Result

__all__ = ["CompilerOptions", "Extras", "Frames", "Protocol", "Result", "compare", "load"]
