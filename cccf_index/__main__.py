"""``python -m cccf_index`` is the command ``cccf``."""

import sys

from cccf_index.cli import main

if __name__ == "__main__":
    sys.exit(main())
