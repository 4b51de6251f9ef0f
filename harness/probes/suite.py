"""``python -m harness.probes.suite JSON``: the cases and the models of a suite, as JSON.

The runner starts it for a file of the user's own, which may do anything when it is imported, and for names
that only a suite's library knows:

    {"suite": s, "setting": setting}                     -> {"cases": [case, ...]}
    {"suite": s, "setting": setting, "names": [name]}    -> {"cases": [case, ...]}, the cases of these names
    {"suite": s, "patterns": [pattern]}                  -> {"names": {pattern: [name, ...] or a sentence}}

``{"wrong": "ValueError: ..."}`` says what the suite's own code raised.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from harness.codec import from_json, to_json
from harness.failures import words_of
from harness.loading.suite_files import cases_of, load_suite
from harness.probes.answering import answer
from harness.schema import Setting


def reply(question: dict[str, Any]) -> dict[str, Any]:
    suite = question["suite"]
    if "patterns" in question:
        return {"names": find(suite, question["patterns"])}
    setting = from_json(Setting, question["setting"])
    try:
        return {"cases": to_json(cases_of(suite, setting, question.get("names")))}
    except BaseException as error:  # the user's code may raise anything, also SystemExit
        return {"wrong": f"{type(error).__name__}: {words_of(error)}"}


def find(suite: str, patterns: Sequence[str]) -> dict[str, list[str] | str]:
    """The names for each pattern, or a sentence why there are none."""
    finder = getattr(load_suite(suite), "find", None)
    names: dict[str, list[str] | str] = {}
    for pattern in patterns:
        try:
            names[pattern] = [*map(str, finder(pattern))] if finder is not None else []
        except LookupError as error:
            names[pattern] = str(error.args[0]) if error.args else str(error)
        except ImportError:
            raise  # the runner's message says which library to install
        except BaseException as error:  # a suite's own code, which may call sys.exit
            names[pattern] = f"find({pattern!r}) of {suite} failed: {type(error).__name__}: {error}"
    return names


if __name__ == "__main__":
    answer(lambda: reply(json.loads(sys.argv[1])))
