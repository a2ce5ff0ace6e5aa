"""What staging and committing a tree cost, beside `cp -a` and `git commit`."""

import asyncio
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from paddock import Paddock
from tests.bench.plane import BenchError, Plane
from tests.bench.report import Result, compare

_DIRECTORIES = 50
_TEXT = "A line of a file that is about as long as a line of source usually is.\n" * 40
_POLICY: dict[str, Any] = {
    "extends": "SAFE_EDIT",
    "world_rules": {"write_patterns": ["**/*"], "proposal_mode": True},
}


async def proposals(plane: Plane, rounds: int, count: int) -> list[Result]:
    """Each round uploads a new tree of `count` files, lists it, and commits it."""
    if shutil.which("git") is None:
        raise BenchError("no git: `apt-get install git` installs it")
    staged, listed, committed, copied, git = [], [], [], [], []
    async with Paddock(plane.url, plane.key) as paddock:
        for _ in range(rounds):
            with tempfile.TemporaryDirectory(prefix="paddock-bench-") as directory:
                tree = Path(directory, "tree")
                await asyncio.to_thread(_make, tree, count)
                copied.append(
                    await asyncio.to_thread(_run, "cp -a tree copy && sync -f copy", tree)
                )
                git.append(await asyncio.to_thread(_committed_by_git, Path(directory, "copy")))
                session = await paddock.sessions.create(permission_level="medium", policy=_POLICY)
                began = time.perf_counter()
                await session.files.upload_dir(tree)
                staged.append(time.perf_counter() - began)
                began = time.perf_counter()
                shown = await session.proposals.list(limit=1)
                listed.append(time.perf_counter() - began)
                if shown.counts.write < count:
                    raise BenchError(f"{shown.counts.write} of {count} files are staged")
                began = time.perf_counter()
                await session.proposals.commit()
                committed.append(time.perf_counter() - began)
                await session.close(purge=True)
    copy, commit = "cp -a, synced", "git add, git commit"
    return [
        compare(f"staging {count} files by an upload", staged, copy, copied),
        compare(f"listing {count} proposals, a page of one", listed, copy, copied),
        compare(f"committing {count} files", committed, copy, copied),
        compare(f"committing {count} files", committed, commit, git),
    ]


def _make(tree: Path, count: int) -> None:
    for number in range(count):
        folder = tree / f"part{number % _DIRECTORIES}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.py").write_text(f"# {number}\n{_TEXT}")


def _copied(tree: Path) -> float:
    return _run("cp -a tree copy && sync -f copy", tree)


def _run(command: str, tree: Path) -> float:
    """Seconds that a shell needs for it, next to the tree."""
    began = time.perf_counter()
    ended = subprocess.run(
        ["sh", "-c", command], cwd=tree.parent, capture_output=True, text=True, check=False
    )
    if ended.returncode != 0:
        raise BenchError(f"{command}: {ended.stderr[-500:]}")
    return time.perf_counter() - began


def _committed_by_git(copy: Path) -> float:
    _run("git init -q copy", copy)
    names = "-c user.name=bench -c user.email=bench@example.org"
    return _run(f"cd copy && git add -A && git {names} commit -qm all && sync -f .", copy)
