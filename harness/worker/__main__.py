"""``python -m harness.worker``"""

import sys

from harness.worker.main import main

if __name__ == "__main__":
    sys.exit(main())
