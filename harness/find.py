"""``python -m harness.find SUITE PATTERN...``: what a suite's library calls by these names, as JSON.

The runner asks this of a worker's interpreter, because the answer may need the library:

    {"vit_*": {"names": ["vit_base_patch16_224", ...]}, "LlamaTokenizer": {"error": "..."}}
"""

from __future__ import annotations

import json
import sys

from harness.suite_files import load_suite


def find(suite: str, patterns: list[str]) -> dict[str, dict[str, object]]:
    """The answer for each pattern: ``names``, or the ``error`` as one sentence."""
    finder = getattr(load_suite(suite), "find", None)
    found: dict[str, dict[str, object]] = {}
    for pattern in patterns:
        try:
            names = finder(pattern) if finder is not None else ()
            found[pattern] = {"names": [*map(str, names)]}
        except LookupError as error:
            found[pattern] = {"error": str(error.args[0]) if error.args else str(error)}
        except ImportError:
            raise  # the runner says that the library is to be installed
        except BaseException as error:  # a suite's own code, which may call sys.exit
            found[pattern] = {
                "error": f"find({pattern!r}) of {suite} failed: {type(error).__name__}: {error}"
            }
    return found


if __name__ == "__main__":
    print(json.dumps(find(sys.argv[1], sys.argv[2:])))
