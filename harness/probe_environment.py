"""``python -m harness.probe_environment``: what an interpreter and its torch say of themselves, as JSON.

Two lines: what any Python can say, then what takes torch. So that an interpreter
whose torch ends the process has said what it is, and one that is too old to be a
worker can say so: nothing here needs a new Python, or the rest of the harness.
"""

import json
import os
import platform
import sys
from typing import Any, Dict  # noqa: UP035

PACKAGES = ("torch", "triton", "transformers", "timm", "numpy")
SETTINGS = ("TORCH", "PYTORCH", "CUBLAS", "CUDA_", "OMP_", "MKL_", "KMP_", "MALLOC_", "LD_PRELOAD")


def interpreter() -> Dict[str, Any]:  # noqa: UP006
    """Of the Python alone."""
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
    """Of torch and the libraries beside it. ``torch_error`` where torch cannot be imported."""
    from importlib import metadata

    found: Dict[str, Any] = {}  # noqa: UP006
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    try:
        import torch
    except ModuleNotFoundError as error:
        missing = error.name == "torch"
        found["torch_error"] = "" if missing else "{}: {}".format(type(error).__name__, error)  # noqa: UP032
        return found
    except BaseException as error:
        found["torch_error"] = "{}: {}".format(type(error).__name__, error)  # noqa: UP032
        return found
    found["torch"] = getattr(torch, "__version__", None)
    found["torch_file"] = os.path.realpath(torch.__file__ or "")
    try:
        found["torch"] = str(torch.__version__)
        found["torch_git"] = torch.version.git_version
        found["cuda"] = torch.version.cuda
        found["cudnn"] = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
        found["cuda_devices"] = torch.cuda.device_count() if torch.cuda.is_available() else 0
        float(torch.ones(2).sum())
    except BaseException as error:
        found["torch_error"] = "{}: {}".format(type(error).__name__, error)  # noqa: UP032
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(interpreter()) + "\n")
    sys.stdout.flush()
    if sys.version_info >= (3, 8):  # noqa: UP036
        sys.stdout.write(json.dumps(packages()) + "\n")
