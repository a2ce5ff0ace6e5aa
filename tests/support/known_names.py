"""A control plane whose way out finds some names at 127.0.0.1, where servers of tests listen.

`python -m tests.support.known_names serve`, with the names in the environment variable KNOWN_NAMES.
"""

import os
import sys

from orchestrator.sandbox import open as opening
from paddock.cli import main
from tests.support.egress import Names, NamesResolver

if __name__ == "__main__":
    names = Names()
    names.answers = {name: [["127.0.0.1"]] for name in os.environ["KNOWN_NAMES"].split()}
    vars(opening)["CheckedResolver"] = lambda: NamesResolver(names)
    sys.exit(main())
