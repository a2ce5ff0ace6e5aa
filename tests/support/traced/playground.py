"""What a traced command finds: a workspace with links that lead out, and canaries everywhere."""

import contextlib
import os
import shutil
from pathlib import Path

WORKSPACE = Path("/workspace")
CANARY = "canary-outside-the-workspace"

# What looks like the workspace, so that a path taken for another finds something.
_PLACES = [Path(name, "canary") for name in ("/", "/etc", "/usr/share", "/tmp", "/root", "/opt")]
_FILES = (
    "a.txt",
    "sub/b.txt",
    "sub/deep/c.txt",
    "over/a.txt",
    "x/a.txt",
    "secret",
    "workspace/a.txt",
)
_LINKS = {
    "out-file": "/canary/a.txt",
    "out-dir": "/canary/sub",
    "rel-file": "../canary/secret",
    "rel-dir": "sub/../../canary",
    "late": "new/../../canary",
    "late-file": "new/../../canary/a.txt",
    "gone": "/canary/gone",
    "root": "/",
    "proc": "/proc/self/root/canary",
    "loop": "loop",
    "in-file": "sub/b.txt",
    "in-dir": "sub/deep",
    "up": "..",
    "over/a.txt": "/canary/a.txt",
    "over/sub": "/canary/sub",
    "over/in-file": "/canary/secret",
    "over/b.txt": "/canary/gone",
    "sub/over": "../over",
    "pile/a.txt": "/canary/a.txt",
    "pile/new": "/canary",
    "pile/x": "/canary/x",
    "pile/sub/b.txt": "/canary/sub/b.txt",
}


def _fill(place: Path, text: str) -> None:
    for name in _FILES:
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text} {name}\nneedle\n")
        path.chmod(0o666)
        path.parent.chmod(0o777)


def lay_out_workspace() -> None:
    """The workspace as every command finds it."""
    for entry in os.scandir(WORKSPACE):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)
    _fill(WORKSPACE, "inside")
    for name in ("-rf", "--help", "a b", "žluť", "new\nline"):
        (WORKSPACE / name).write_text("needle odd\n")
    (WORKSPACE / "list").write_bytes(b"/canary/a.txt\0/canary/secret\0")
    (WORKSPACE / "tool").write_text("#!/bin/sh\necho ran\n")
    (WORKSPACE / "tool").chmod(0o755)
    (WORKSPACE / "empty").mkdir()
    (WORKSPACE / "from").mkdir()
    for name, target in _LINKS.items():
        link = WORKSPACE / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(target)
    # Links that a command can bring into the way of its own later operands.
    (WORKSPACE / "from" / "x").symlink_to("/canary/x")
    (WORKSPACE / "from" / "in-dir").symlink_to("/canary")
    (WORKSPACE / "from" / "new").mkdir()
    (WORKSPACE / "from" / "brought").symlink_to("/canary")


def lay_out_canaries() -> None:
    """Files outside that anybody may read, change, remove and run."""
    for place in _PLACES:
        shutil.rmtree(place, ignore_errors=True)
        _fill(place, CANARY)
    for name in ("a.txt", "secret"):
        Path("/", name).write_text(f"{CANARY} {name}\n")
    for name in ("evil", "canary-tool"):
        program = Path("/usr/local/bin", name)
        program.write_text(f"#!/bin/sh\necho {CANARY}\n")
        program.chmod(0o777)


def seen_outside() -> dict[str, tuple[int, int, int, bytes]]:
    """Mode, size, time of change and content of the canaries, and who lies beside them."""
    found = {}
    folders = [Path("/"), Path("/usr/local/bin"), Path("/tmp"), *_PLACES]
    for folder in folders:
        walk = os.walk(folder) if folder in _PLACES else [(str(folder), [], os.listdir(folder))]
        for where, directories, files in walk:
            for name in [*directories, *files]:
                path = os.path.join(where, name)
                with contextlib.suppress(FileNotFoundError):
                    found[path] = _facts(path, folder in _PLACES)
    return found


def _facts(path: str, whole: bool) -> tuple[int, int, int, bytes]:
    facts = os.lstat(path)
    if not whole:
        return facts.st_mode, 0, 0, b""
    content = b""
    if os.path.isfile(path) and not os.path.islink(path):
        with open(path, "rb") as file:
            content = file.read()
    return facts.st_mode, facts.st_size, facts.st_mtime_ns, content
