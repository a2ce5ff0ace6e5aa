"""What a reader of the documents has in a shell: programs by name, and where the server is."""

import os
import sys
from pathlib import Path

from tests.support.forked import ROOT, forker
from tests.support.server import Server

# The documents' curl must not hide a refusal.
_CURL = '#!/bin/sh\nexec {curl} --fail-with-body "$@"\n'
# `tests/integration/test_cli.py` starts it as users do, with a Python that imports it.
_PADDOCK = """#!/bin/sh
PYTHONPATH={root} exec {python} -IS {root}/tests/support/forked_program.py {forker} paddock "$@"
"""
_PYTHON = '#!/bin/sh\nPYTHONPATH={root} exec {python} "$@"\n'


def reader_environment(server: Server, programs: Path) -> dict[str, str]:
    """The environment of a document's commands; `programs` is a new directory for them."""
    programs.mkdir()
    curl = "/usr/bin/curl"
    for name, text in (("curl", _CURL), ("paddock", _PADDOCK), ("python", _PYTHON)):
        program = programs / name
        program.write_text(
            text.format(curl=curl, root=ROOT, python=sys.executable, forker=forker())
        )
        program.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PADDOCK_")}
    return {
        **kept,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PADDOCK_URL": server.url,
        "PADDOCK_STATE_DIR": str(server.state_dir),
        "PADDOCK_LISTEN": server.url.removeprefix("http://"),
    }
