"""What substitutes for facilities that older kernels lack cost, beside the kernel's own means."""

import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from images.builder import build
from orchestrator.rules.policy import levels as level_files
from paddock import Paddock, Session
from tests.bench.floors import loop_seconds
from tests.bench.plane import BenchError, measured_plane
from tests.bench.report import Result, compare
from tests.bench.rounds import Side, alternating
from tests.support.older_kernels import LEAST, older_image

_LEVEL = "substituted"
_SECONDS = 110
# Times one kind of work in a command, and prints nanoseconds as JSON.
_LOOP = """
import json, mmap, os, subprocess, sys, time
what, times = sys.argv[1], int(sys.argv[2])
child = subprocess.Popen(["/usr/bin/python3", "-ISc", "input()"], stdin=subprocess.PIPE)
def kill():
    os.kill(child.pid, 0)
def memory():
    mmap.mmap(-1, 65536).close()
def status():
    subprocess.run(["/usr/bin/git", "status", "--short"], check=True, stdout=subprocess.DEVNULL)
work, taken = {"kill": kill, "memory": memory, "status": status}[what], []
for _ in range(times):
    began = time.perf_counter_ns()
    work()
    taken.append(time.perf_counter_ns() - began)
child.communicate()
print(json.dumps(taken))
"""
# Each row: its name, the loop's word, and how often it is done in one turn.
_LOOPS = (
    ("a signal to a child", "kill", 200),
    ("an mmap and a munmap", "memory", 2000),
    ("git status", "status", 5),
)
_TRUES = 10


async def substitutes(rounds: int) -> list[Result]:
    """Ratios of a session without the newer facilities to one with them, in the same run."""
    async with _both() as (older, newer):
        results = [await _compared(f"`true` at {_LEVEL}", rounds, _trues(older), _trues(newer))]
        for name, word, times in _LOOPS:
            sides = (_looped(older, word, times), _looped(newer, word, times))
            results.append(await _compared(name, rounds, *sides))
        return results


async def _compared(name: str, rounds: int, ours: Side, floor: Side) -> Result:
    taken, floors = await alternating(rounds, ours, floor)
    return compare(f"{name}, by substitutes", taken, "by the kernel's means", floors)


def _trues(session: Session) -> Side:
    async def side() -> Sequence[float]:
        taken = []
        for _ in range(_TRUES):
            began = time.perf_counter()
            await _run(session, "true")
            taken.append(time.perf_counter() - began)
        return taken

    return side


def _looped(session: Session, word: str, times: int) -> Side:
    async def side() -> Sequence[float]:
        return loop_seconds(await _run(session, "python3", "-ISc", _LOOP, word, str(times)))

    return side


async def _run(session: Session, *argv: str) -> str:
    done = await session.exec(argv=list(argv), timeout=_SECONDS)
    if done.exit_code != 0:
        raise BenchError(f"{argv[0]} ended with {done.exit_code}: {done.stderr}")
    return done.stdout


@asynccontextmanager
async def _both() -> AsyncIterator[tuple[Session, Session]]:
    """A session whose agent does without the newer facilities, and one like it with them."""
    usual = build().name
    with tempfile.TemporaryDirectory(prefix="paddock-bench-") as name:
        _write_level(Path(name))
        with older_image(usual, LEAST) as image:
            settings = {"PADDOCK_LEVELS_DIR": name, "PADDOCK_IMAGES": f"{usual},{image}"}
            async with (
                measured_plane(**settings) as plane,
                Paddock(plane.url, plane.key) as paddock,
            ):
                create = paddock.sessions.create
                older = await create(permission_level=_LEVEL, image=image)
                newer = await create(permission_level=_LEVEL, image=usual)
                for session in (older, newer):
                    await _run(session, "git", "init", "-q")
                yield older, newer


def _write_level(directory: Path) -> None:
    """High without a network, where no memory is writable and executable."""
    packaged = Path(level_files.__file__).with_name("levels") / "high.toml"
    text = packaged.read_text(encoding="utf-8")
    for usual, ours in (
        ('network = "open"', 'network = "none"'),
        ("writable_code = true", "writable_code = false"),
        ("rank = 300", "rank = 301"),
    ):
        if usual not in text:
            raise BenchError(f"high.toml has no {usual}")
        text = text.replace(usual, ours)
    (directory / f"{_LEVEL}.toml").write_text(text, encoding="utf-8")
