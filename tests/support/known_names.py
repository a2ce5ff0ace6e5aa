"""A control plane whose way out finds some names where servers of tests listen.

`python -m tests.support.known_names serve`, with the names in the environment variable KNOWN_NAMES:
each alone, for 127.0.0.1, or as `NAME=ADDRESS`.
"""

import ipaddress
import os
import sys

from orchestrator.sandbox import open as opening
from paddock.cli import main
from tests.support.egress import Names, NamesResolver

if __name__ == "__main__":
    names = Names()
    pairs = (each.partition("=") for each in os.environ["KNOWN_NAMES"].split())
    known = {name: address or "127.0.0.1" for name, _, address in pairs}
    names.answers = {name: [[address]] for name, address in known.items()}
    addresses = [ipaddress.ip_address(address) for address in known.values()]
    vars(opening)["CheckedResolver"] = lambda: NamesResolver(names, *addresses)
    sys.exit(main())
