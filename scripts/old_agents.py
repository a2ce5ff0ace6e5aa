"""Keeps the agents of earlier versions, for the tests of sandboxes that are taken over.

`python -m scripts.old_agents COMMIT...` keeps each commit's agent in `tests/fixtures/agents/`, by
its protocol: one of the last commits of each protocol that `earlier_agents.py` speaks.
"""

import re
import sys
import tarfile
import tempfile
from pathlib import Path

from scripts.old_states import ROOT, StateError, output, plain

KEPT = ROOT / "tests" / "fixtures" / "agents"
_CODE = "sandbox_agent"
_PROTOCOL = re.compile(r"^PROTOCOL_VERSION = (\d+)$", re.MULTILINE)


def keep(commit: str, target: Path) -> Path:
    """Writes the agent of one commit, as `PROTOCOL-NAME.tar.xz`. Raises: StateError."""
    name = output("git", "-C", str(ROOT), "rev-parse", "--short=8", commit).strip()
    with tempfile.TemporaryDirectory(prefix="paddock-old-") as directory:
        packed, code = Path(directory, "code.tar"), Path(directory, _CODE)
        output("git", "-C", str(ROOT), "archive", f"--output={packed}", commit, _CODE)
        with tarfile.open(packed) as archive:
            archive.extractall(directory, filter="data")
        sources = sorted(code.rglob("*.py"))
        found = {number for path in sources for number in _PROTOCOL.findall(path.read_text())}
        if len(found) != 1:
            raise StateError(f"{name} has no one protocol")
        target.mkdir(parents=True, exist_ok=True)
        made = target / f"{int(found.pop()):02}-{name}.tar.xz"
        with tarfile.open(made, "w:xz", preset=9) as archive:
            for path in sources:
                archive.add(path, path.relative_to(directory), filter=plain)
    return made


def main() -> int:
    """Keeps the agents of the commits and prints their files."""
    for commit in sys.argv[1:]:
        try:
            print(keep(commit, KEPT))
        except StateError as error:
            print(f"error: {commit}: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
