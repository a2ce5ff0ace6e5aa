"""Makes state directories of earlier versions, for the tests of upgrades.

`python -m scripts.old_states [COMMIT]...` runs each commit's own code, with its own tests' stand-in
for the engine, and keeps what it has written in `tests/fixtures/states/`. Without arguments it adds
the present version, which a release does whose schema has changed.
"""

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "tests" / "fixtures" / "states"
_SECONDS = 600
# Steps that every version since the first knows. One session ends, one runs, one was suspended by
# nobody; their chains have allowed and refused commands, and a deleted session's id is used again.
_SCENARIO = """
import json, os, sqlite3
from pathlib import Path
from tests.support.fake_agent import Play


async def test_state(api, settings, tmp_path):
    api.agents.plays["make"] = Play(b"out\\n", b"err\\n", exit_code=2)
    for name, level in (("ended", "low"), ("live", "high"), ("again", "high")):
        await api.session(id=name, permission_level=level)
        await api.call("POST", f"/api/sessions/{name}/exec", json={"argv": ["ls"]})
        await api.call("POST", f"/api/sessions/{name}/exec", json={"command": "rm -rf / ; ls"})
    await api.json("POST", "/api/sessions/live/exec", json={"argv": ["make", "it"]})
    for name in ("ended", "again"):
        await api.call("DELETE", f"/api/sessions/{name}")
    await api.session(id="again", permission_level="low")
    told: dict = {"sessions": {}}
    for name in ("ended", "live", "again"):
        audit = await api.json("GET", f"/api/sessions/{name}/audit?limit=500")
        events = audit["items"]
        told["sessions"][name] = [[e["seq"], e["operation"], e["hash"]] for e in events]
    target = Path(os.environ["KEPT_STATE"])
    target.mkdir()
    with sqlite3.connect(settings.state_dir / "paddock.db") as source:
        with sqlite3.connect(target / "paddock.db") as copy:
            source.backup(copy)
            told["schema"] = copy.execute("SELECT max(version) FROM schema_version").fetchone()[0]
            copy.execute("PRAGMA journal_mode = DELETE")
    (target / "told.json").write_text(json.dumps(told, indent=1))
"""


class StateError(Exception):
    """A commit's state can't be made; the text has the reason."""


def make(commit: str, target: Path) -> Path:
    """Writes the state of one commit, as `NAME.tar.xz`. Raises: StateError."""
    name = output("git", "-C", str(ROOT), "rev-parse", "--short=8", commit).strip()
    with tempfile.TemporaryDirectory(prefix="paddock-old-") as directory:
        code, state = Path(directory, "code"), Path(directory, "state")
        code.mkdir()
        packed = Path(directory, "code.tar")
        output("git", "-C", str(ROOT), "archive", f"--output={packed}", commit)
        with tarfile.open(packed) as archive:
            archive.extractall(code, filter="data")
        (code / "tests" / "api" / "test_kept_state.py").write_text(_SCENARIO)
        options = ("-q", "-p", "no:cacheprovider", "-o", "filterwarnings=default", "-o", "addopts=")
        output(
            *(sys.executable, "-m", "pytest", *options, "tests/api/test_kept_state.py"),
            at=code,
            KEPT_STATE=str(state),
        )
        told = json.loads((state / "told.json").read_text())
        told["commit"] = name
        (state / "told.json").write_text(json.dumps(told, indent=1))
        target.mkdir(parents=True, exist_ok=True)
        made = target / f"{told['schema']:04}-{name}.tar.xz"
        with tarfile.open(made, "w:xz", preset=9) as archive:
            for path in sorted(state.iterdir()):
                archive.add(path, path.name, filter=plain)
        return made


def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """A member of an archive without what differs from one machine to the next."""
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    member.mode = 0o600
    return member


def output(*command: str, at: Path | None = None, **environment: str) -> str:
    """What a command prints. Raises: StateError with it if the command fails."""
    done = subprocess.run(
        command,
        cwd=at,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_SECONDS,
        check=False,
        env=os.environ | environment,
    )
    if done.returncode:
        raise StateError(f"{' '.join(command[:4])} failed:\n{done.stdout}")
    return done.stdout


def main() -> int:
    """Makes the states of the commits and prints their files."""
    for commit in sys.argv[1:] or ["HEAD"]:
        try:
            print(make(commit, KEPT))
        except StateError as error:
            print(f"error: {commit}: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
