"""What the way out costs: a client in a sandbox beside the same client on the host."""

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from images.builder import build
from tests.bench.fetching import CLIENT, MIB, flat, on_host
from tests.bench.plane import BenchError
from tests.bench.report import Result, compare
from tests.bench.rounds import Side, alternating
from tests.support.box import Box
from tests.support.egress import Names, NamesResolver, certificate, level_with
from tests.support.plane import opened

_PLAIN, _READ = "plain.example", "inspected.example"
_GIB = 1024 * MIB
_REQUESTS = 50  # one after another, in each turn
_SESSIONS, _AT_ONCE = 4, 50


@dataclass(frozen=True, slots=True)
class _Way:
    """A server and the clients on both sides."""

    boxes: Sequence[Box]
    directory: Path
    http: int
    https: int

    def url(self, scheme: str, host: str, size: int) -> str:
        port = self.https if scheme == "https" else self.http
        return f"{scheme}://{host}:{port}/{size}"

    async def inside(
        self, url: str, times: int = 1, at_once: int = 1, boxes: int = 1
    ) -> Sequence[float]:
        """The seconds of the clients in sandboxes, the slowest if there are several."""
        outcomes = await asyncio.gather(
            *(
                box.python(CLIENT, url, str(times), str(at_once), timeout=600)
                for box in self.boxes[:boxes]
            )
        )
        if any(outcome.exit_code for outcome in outcomes):
            raise BenchError(f"a client failed: {outcomes[0].stderr}")
        taken = [[float(each) for each in outcome.stdout.split()] for outcome in outcomes]
        return taken[0] if boxes == 1 else [max(each[0] for each in taken)]

    async def commands(self, download: Side) -> Sequence[float]:
        """The seconds of each command in another sandbox, one after another, meanwhile."""
        taken = []
        task = asyncio.ensure_future(download())
        while not task.done():
            began = time.perf_counter()
            await self.boxes[-1].run(argv=["true"])
            taken.append(time.perf_counter() - began)
        await task
        return taken

    async def outside(self, url: str, times: int = 1, at_once: int = 1) -> Sequence[float]:
        """The seconds of a client on the host, which knows the server by its address."""
        for name in (_PLAIN, _READ):
            url = url.replace(name, "localhost")
        roots = str(self.directory / "cert.pem")
        return await on_host(url, times, at_once, SSL_CERT_FILE=roots)


async def egress(rounds: int, size: int = _GIB) -> list[Result]:
    """Latency, a large download and many connections, each beside the same without a proxy."""
    async with _ways() as way:
        results = [
            await _latency(way, rounds, "http", _PLAIN, "http through the proxy"),
            await _latency(way, rounds, "https", _PLAIN, "https, not inspected"),
            await _latency(way, rounds, "https", _READ, "https, inspected"),
        ]
        for name, host in (("", _PLAIN), (", inspected", _READ)):
            url = way.url("https", host, size)
            what = f"download of {size // MIB} MiB{name}"
            inside, outside = partial(way.inside, url), partial(way.outside, url)
            results += await flat(what, rounds, inside, outside)
            results.append(await _beside(way, rounds, f"this download{name}", inside, outside))
        url = way.url("https", _PLAIN, MIB)
        many = partial(way.inside, url, _AT_ONCE, _AT_ONCE, _SESSIONS)
        alone = partial(way.outside, url, _SESSIONS * _AT_ONCE, _SESSIONS * _AT_ONCE)
        what = f"{_SESSIONS * _AT_ONCE} downloads of 1 MiB at once"
        results += await flat(what, rounds, many, alone)
        results.append(await _beside(way, rounds, "these downloads", many, alone))
        return results


async def _latency(way: _Way, rounds: int, scheme: str, host: str, what: str) -> Result:
    url = way.url(scheme, host, 1)
    ours, direct = await alternating(
        rounds, partial(way.inside, url, _REQUESTS), partial(way.outside, url, _REQUESTS)
    )
    return compare(f"a request by {what}", ours, "direct", direct)


async def _beside(way: _Way, rounds: int, what: str, inside: Side, outside: Side) -> Result:
    """What a command takes while something is downloaded, through the proxy or directly."""
    ours, direct = await alternating(
        rounds, partial(way.commands, inside), partial(way.commands, outside)
    )
    return compare(f"a command beside {what}", ours, "beside direct ones", direct)


@asynccontextmanager
async def _ways() -> AsyncIterator[_Way]:
    """A control plane in this process, whose proxy takes 127.0.0.1 for a public address."""
    image = "paddock/sandbox:bench"
    await asyncio.to_thread(build, image, report=lambda _line: None)
    names = Names()
    names.answers = {name: [["127.0.0.1"]] for name in (_PLAIN, _READ)}
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        certificate(directory, "localhost", _PLAIN, _READ)
        async with _upstream(directory) as (http, https):
            rules = "".join(
                f'\n[[egress.allow]]\nhost = "{host}"\nports = [{http}, {https}]\n{more}'
                for host, more in ((_PLAIN, ""), (_READ, "inspect = true\n"))
            )
            (directory / "free.toml").write_text(level_with(rules, "high", 310))
            async with opened(
                resolver=NamesResolver(names),
                image=image,
                levels_dir=directory,
                ca_file=directory / "cert.pem",
            ) as plane:
                boxes = [await Box.create(plane, "free") for _ in range(_SESSIONS)]
                yield _Way(boxes, directory, http, https)


@asynccontextmanager
async def _upstream(directory: Path) -> AsyncIterator[tuple[int, int]]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.bench.upstream", str(directory)),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        http, https = (await process.stdout.readline()).split()
        yield int(http), int(https)
    finally:
        process.kill()
        await process.wait()
