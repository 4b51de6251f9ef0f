"""``python -m studies``"""

import sys

from studies.cli import main

if __name__ == "__main__":
    sys.exit(main())
