"""What a reader of the documents has in a shell: programs by name, and where the server is."""

import os
import sys
from pathlib import Path

from tests.support.forked import in_a_shell
from tests.support.server import ROOT, Server

# The documents' curl must not hide a refusal.
_CURL = '#!/bin/sh\nexec {curl} --fail-with-body "$@"\n'
# `tests/api/test_cli.py` starts it as users do, with a Python that imports it.
_PADDOCK = '#!/bin/sh\nPYTHONPATH={root} exec {forked} "$@"\n'
_PYTHON = '#!/bin/sh\nPYTHONPATH={root} exec {python} "$@"\n'


def reader_environment(server: Server, programs: Path) -> dict[str, str]:
    """The environment of a document's commands; `programs` is a new directory for them."""
    programs.mkdir()
    names = {
        "curl": "/usr/bin/curl",
        "root": ROOT,
        "python": sys.executable,
        "forked": " ".join(in_a_shell("paddock")),
    }
    for name, text in (("curl", _CURL), ("paddock", _PADDOCK), ("python", _PYTHON)):
        program = programs / name
        program.write_text(text.format(**names))
        program.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PADDOCK_")}
    return {
        **kept,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PADDOCK_URL": server.url,
        "PADDOCK_STATE_DIR": str(server.state_dir),
        "PADDOCK_LISTEN": server.url.removeprefix("http://"),
    }
