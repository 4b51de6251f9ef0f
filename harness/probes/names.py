"""``python -m harness.probes.names SUITE PATTERN...``: the models of a suite that match, as JSON.

The runner starts it with a worker's interpreter, because the answer may need the suite's library:

    {"vit_*": {"names": ["vit_base_patch16_224", ...]}, "LlamaTokenizer": {"error": "..."}}
"""

from __future__ import annotations

import json
import sys

from harness.loading.suite_files import load_suite


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
            raise  # the runner's message says which library to install
        except BaseException as error:  # a suite's own code, which may call sys.exit
            found[pattern] = {
                "error": f"find({pattern!r}) of {suite} failed: {type(error).__name__}: {error}"
            }
    return found


if __name__ == "__main__":
    print(json.dumps(find(sys.argv[1], sys.argv[2:])))
