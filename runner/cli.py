"""From the command line to an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from runner.app import BAD_INPUT, INTERRUPTED, perform
from runner.config import parse_request
from runner.errors import UsageError
from runner.flags import build_parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program. Bad input: one sentence on stderr, code 2."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        options = build_parser().parse_args(arguments)
        return perform(parse_request(options), arguments)
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        return FAILED_PIPE


FAILED_PIPE = 141
