"""`python -m api …` is `paddock …`."""

import sys

from api.cli import main

if __name__ == "__main__":
    sys.exit(main())
