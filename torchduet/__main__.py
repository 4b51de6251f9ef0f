"""``torchduet`` and ``python -m torchduet``: the command line, as ``python runner.py`` in a checkout."""

import sys

from torchduet import check_names


def main() -> int:
    try:
        check_names()
    except ImportError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    from runner.interrupts import end_quietly_while_importing

    end_quietly_while_importing()
    from runner.cli.main import main as command_line

    return command_line()


if __name__ == "__main__":
    sys.exit(main())
