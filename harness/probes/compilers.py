"""``python -m harness.probes.compilers cpu [NAME...]``: what each compiler is, and whether it can be used.

The answer is ``{name: {"what": line, "why": reason or null, "modes": [mode, ...]}}``. An empty list of modes
means all modes. Without names it lists: the compilers with a file in harness/backends, the compilers that
installed packages or the given files register, and the user's own.

    --own NAME=file.py:function    a compiler of the user's own
    --file mine.py                 a file or module that may register compilers with torch.compile
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence

from harness.backends import backend_names, backend_of, why_unavailable
from harness.failures import words_of
from harness.probes.answering import answer


def probe(name: str, device_type: str, source: str = "") -> dict[str, str | list[str] | None]:
    """The entry of one compiler. An exception becomes its ``why``: the compiler cannot be used."""
    try:
        compiler = backend_of(name, source)
        why = why_unavailable(name, device_type, source)
        return {"what": compiler.what, "why": why, "modes": list(compiler.modes)}
    except Exception as error:  # the import of a package may raise anything
        return {"what": "", "why": words_of(error) or type(error).__name__, "modes": []}


def probed(arguments: Sequence[str]) -> dict[str, dict[str, str | list[str] | None]]:
    parser = argparse.ArgumentParser(prog="python -m harness.probes.compilers")
    parser.add_argument("device_type")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--own", action="append", default=[])
    parser.add_argument("--file", action="append", default=[])
    options = parser.parse_intermixed_args(arguments)
    own = dict(str(text).split("=", 1) for text in options.own)
    elsewhere: tuple[str, ...] = ()
    if not options.names or set(options.names) - {*backend_names(), *own}:
        elsewhere = _registered_by(options.file)
    names = options.names or dict.fromkeys((*backend_names(), *elsewhere, *own))
    return {name: probe(name, options.device_type, own.get(name, "")) for name in names}


def _registered_by(files: Iterable[str]) -> tuple[str, ...]:
    """Names that installed packages and these files register with ``torch.compile``."""
    from harness.backends.shared.dynamo import installed_names, registered_names
    from harness.loading.own_model_build import load_module

    before = set(registered_names())
    for file in files:
        try:
            load_module(file)
        except (Exception, SystemExit) as error:  # the user's code; the job's own record has the reason
            print(f"{file} cannot be loaded: {type(error).__name__}: {error}", file=sys.stderr)
    return (*installed_names(), *sorted(set(registered_names()) - before))


if __name__ == "__main__":
    answer(lambda: probed(sys.argv[1:]))
