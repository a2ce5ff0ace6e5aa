"""How cost grows with the record: the CPU time of a start, and that of pages of audit."""

import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psutil

from images.progress import step
from tests.bench.rounds import by_turns, percentile
from tests.bench.sessions import table
from tests.support.grown_record import NEEDLE, grow
from tests.support.server import Server, serving

EVENTS = (10_000, 1_000_000, 10_000_000)
QUICK_EVENTS = (1000, 100_000)
_EVENTS_EACH = 500
_STARTS, _PAGES = 7, 20
_LIMIT = 100
# What is asked of each record, by the words that the table has for it. `{deep}` is an event in the
# middle of the record, `{session}` a session there, `{old}` a time when a tenth was on record.
_QUERIES = {
    "newest": "/api/audit?",
    "in the middle": "/api/audit?cursor={deep}",
    "one session": "/api/audit?session={session}",
    "one owner, in the middle": "/api/audit?owner=ci&cursor={deep}",
    "refusals": "/api/audit?decision=deny",
    "refusals by one rule, in the middle": "/api/audit?rule=command-not-allowed&cursor={deep}",
    "until a time long ago": "/api/audit?to={old}",
    f"the text {NEEDLE}": f"/api/audit?text={NEEDLE}",
    f"refusals with the text {NEEDLE}": f"/api/audit?decision=deny&text={NEEDLE}",
    "a session, forwards": "/api/sessions/{session}/audit?",
    "a session, forwards, in the middle": "/api/sessions/{session}/audit?after=250",
}


class Start(NamedTuple):
    """Starts with so many events in all: medians of ms until it listens, and of ms of CPU."""

    events: int
    sessions: int
    start: float
    cpu: float
    beside_none: float


class Page(NamedTuple):
    """Pages: events that were found, and medians of ms of CPU, in the readers' threads and in all.

    `answer` is the time until the answer was there.
    """

    page: str
    events: int
    found: int
    readers: float
    all: float
    answer: float


class Growth(NamedTuple):
    """All figures of one run."""

    starts: list[Start]
    pages: list[Page]


async def growth(counts: Sequence[int]) -> Growth:
    """Makes a record of each size, starts control planes on them by turns, and reads from them."""
    with tempfile.TemporaryDirectory(prefix="paddock-bench-") as top:
        states = {count: Path(top) / str(count) for count in (0, *counts)}
        for count, state_dir in states.items():
            step(f"a record of {count:,} events …")
            grow(state_dir, count // _EVENTS_EACH, _EVENTS_EACH)
        return await measured(states)


async def measured(states: dict[int, Path]) -> Growth:
    """The figures of records that exist, by their number of events; one has none."""
    step("starts …")
    said = await by_turns(_STARTS, [partial(_start, each) for each in states.values()])
    medians = [[percentile(column, 0.5) for column in zip(*each, strict=True)] for each in said]
    starts = dict(zip(states, medians, strict=True))
    pages = []
    for count, state_dir in states.items():
        if count:
            step(f"pages of {count:,} events …")
            pages += [page async for page in _pages(count, state_dir)]
    return Growth(
        [
            Start(count, count // _EVENTS_EACH, start, cpu, cpu / starts[0][1])
            for count, (start, cpu) in starts.items()
        ],
        sorted(pages, key=lambda page: (list(_QUERIES).index(page.page), page.events)),
    )


async def _start(state_dir: Path) -> tuple[float, float]:
    """Ms of a start until it listens, and of its CPU, with the programs that it has run."""
    began = time.perf_counter()
    async with serving(state_dir) as server:
        took = time.perf_counter() - began
        return 1000 * took, 1000 * sum(psutil.Process(server.pid).cpu_times()[:4])


async def _pages(count: int, state_dir: Path) -> AsyncIterator[Page]:
    async with serving(state_dir) as server:
        deep = count // 2
        (event,) = (await server.ok("GET", f"/api/audit?cursor={deep}&limit=1"))["items"]
        (early,) = (await server.ok("GET", f"/api/audit?cursor={count // 10}&limit=1"))["items"]
        values = {"deep": deep, "session": event["session_id"], "old": early["time"]}
        for words, query in _QUERIES.items():
            path = f"{query.format(**values)}&limit={_LIMIT}"
            asked = [await _page(server, path) for _ in range(_PAGES)]
            found, readers, process, answer = (
                percentile(column, 0.5) for column in zip(*asked, strict=True)
            )
            yield Page(words, count, int(found), readers, process, answer)


async def _page(server: Server, path: str) -> tuple[int, float, float, float]:
    before, began = _cpu(server.pid), time.perf_counter()
    found = (await server.ok("GET", path))["items"]
    took, after = time.perf_counter() - began, _cpu(server.pid)
    loop, others = (1000 * (then - now) for now, then in zip(before, after, strict=True))
    return len(found), others, loop + others, 1000 * took


def _cpu(pid: int) -> tuple[float, float]:
    """Seconds of CPU of the process's first thread, which has the event loop, and of the others."""
    spent = {
        task.name: int((task / "schedstat").read_text().split()[0]) / 1e9
        for task in Path(f"/proc/{pid}/task").iterdir()
    }
    loop = spent.pop(str(pid))
    return loop, sum(spent.values())


def lines(growth: Growth) -> Iterator[str]:
    """The figures as Markdown."""
    yield from table(Start._fields, growth.starts)
    yield ""
    yield "| page | events | found | readers, ms of CPU | all, ms of CPU | answer, ms |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for page in growth.pages:
        yield (
            f"| {page.page} | {page.events} | {page.found} | {page.readers:.3g} | {page.all:.3g}"
            f" | {page.answer:.3g} |"
        )
