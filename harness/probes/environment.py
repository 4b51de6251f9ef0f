"""``python -m harness.probes.environment``: versions of an interpreter, its torch and its packages, as JSON.

Two lines: first the facts of Python, then the facts that need torch. The first line exists even if the
import of torch ends the process. The code runs under old versions of Python, too, so that a too old
interpreter is reported with its version.
"""

import json
import os
import platform
import sys
from typing import Any, Dict  # noqa: UP035

PACKAGES = ("torch", "triton", "torchvision", "transformers", "timm", "numpy")
SETTINGS = ("TORCH", "PYTORCH", "CUBLAS", "CUDA_", "OMP_", "MKL_", "KMP_", "MALLOC_", "LD_PRELOAD")


def interpreter() -> Dict[str, Any]:  # noqa: UP006
    return {
        "python": platform.python_version(),
        "version": list(sys.version_info[:2]),
        "implementation": platform.python_implementation(),
        "machine": platform.machine(),
        "platform": platform.platform(),
        "prefix": os.path.realpath(sys.prefix),
        "settings": dict((k, v) for k, v in os.environ.items() if k.startswith(SETTINGS)),  # noqa: C402
    }


def packages() -> Dict[str, Any]:  # noqa: UP006
    """The facts of torch and other packages. ``torch_error`` says why torch cannot be imported."""
    from importlib import metadata

    facts: Dict[str, Any] = {}  # noqa: UP006
    for name in PACKAGES:
        try:
            facts[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            facts[name] = None
    try:
        import torch

        facts["torch"] = getattr(torch, "__version__", None)
        facts["torch_file"] = os.path.realpath(torch.__file__ or "")
        facts["torch"] = str(torch.__version__)
        facts["torch_git"] = torch.version.git_version
        from harness import devices

        facts.update(devices.versions())
        facts["cudnn"] = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
        facts["devices"] = devices.counts()
        float(torch.ones(2).sum())
    except BaseException as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == "torch"
        facts["torch_error"] = "" if missing else "{}: {}".format(type(error).__name__, error)  # noqa: UP032
    return facts


if __name__ == "__main__":
    sys.stdout.write(json.dumps(interpreter()) + "\n")
    sys.stdout.flush()
    if sys.version_info >= (3, 8):  # noqa: UP036
        sys.stdout.write(json.dumps(packages()) + "\n")
