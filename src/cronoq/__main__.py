"""`python -m cronoq` is the command `cronoq-trio`."""

import sys

from cronoq._cli.main import main

if __name__ == "__main__":
    sys.exit(main())
