"""`python -m mem0audit`."""

import sys

from mem0audit.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
