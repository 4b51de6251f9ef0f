"""Eager and compiled PyTorch, measured in pairs: ``python runner.py --help``."""

import sys

from runner.interrupts import end_quietly_while_importing

if __name__ == "__main__":
    end_quietly_while_importing()
    from runner.cli.main import main

    sys.exit(main())
