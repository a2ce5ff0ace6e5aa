"""What the way out costs: a client in a sandbox beside the same client on the host."""

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from images.builder import build
from tests.bench.memory import reset_peak, resident
from tests.bench.plane import BenchError
from tests.bench.report import Result, compare
from tests.bench.rounds import Turn, by_turns
from tests.support.box import Box
from tests.support.egress import Names, NamesResolver, certificate, level_with
from tests.support.plane import opened

_PLAIN, _READ = "plain.example", "inspected.example"
_MIB = 1024 * 1024
_GIB = 1024 * _MIB
_REQUESTS = 50  # one after another, in each turn
_SESSIONS, _AT_ONCE = 4, 50
# Buffers of the connections; the downloads held in memory would take 200 MiB.
_FLAT_MIB = 64
# Prints how many seconds each request took, new connections all. The proxy and the roots are in the
# environment.
_CLIENT = """
import ssl, sys, time, urllib.request
from concurrent.futures import ThreadPoolExecutor
url, times, at_once = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
roots = ssl.create_default_context()
def fetch(_):
    began = time.perf_counter()
    with urllib.request.urlopen(url, context=roots) as answer:
        while answer.read(1 << 20):
            pass
    return time.perf_counter() - began
fetch(0)
with ThreadPoolExecutor(at_once) as pool:
    began = time.perf_counter()
    each = list(pool.map(fetch, range(times)))
print(*(each if at_once == 1 else [time.perf_counter() - began]))
"""


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
                box.python(_CLIENT, url, str(times), str(at_once), timeout=600)
                for box in self.boxes[:boxes]
            )
        )
        if any(outcome.exit_code for outcome in outcomes):
            raise BenchError(f"a client failed: {outcomes[0].stderr}")
        taken = [[float(each) for each in outcome.stdout.split()] for outcome in outcomes]
        return taken[0] if boxes == 1 else [max(each[0] for each in taken)]

    async def outside(self, url: str, times: int = 1, at_once: int = 1) -> Sequence[float]:
        """The seconds of a client on the host, which knows the server by its address."""
        for name in (_PLAIN, _READ):
            url = url.replace(name, "localhost")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _CLIENT, url, str(times), str(at_once)),
            env={**os.environ, "SSL_CERT_FILE": str(self.directory / "cert.pem")},
            stdout=asyncio.subprocess.PIPE,
        )
        printed, _ = await process.communicate()
        if process.returncode:
            raise BenchError("the client on the host failed")
        return [float(each) for each in printed.split()]


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
            what = f"download of {size // _MIB} MiB{name}"
            results += await _flat(
                what, rounds, partial(way.inside, url), partial(way.outside, url)
            )
        url = way.url("https", _PLAIN, _MIB)
        many = partial(way.inside, url, _AT_ONCE, _AT_ONCE, _SESSIONS)
        alone = partial(way.outside, url, _SESSIONS * _AT_ONCE, _SESSIONS * _AT_ONCE)
        what = f"{_SESSIONS * _AT_ONCE} downloads of 1 MiB at once"
        return [*results, *await _flat(what, rounds, many, alone)]


async def _latency(way: _Way, rounds: int, scheme: str, host: str, what: str) -> Result:
    url = way.url(scheme, host, 1)
    ours, direct = await by_turns(
        rounds, partial(way.inside, url, _REQUESTS), partial(way.outside, url, _REQUESTS)
    )
    return compare(f"a request by {what}", ours, "direct", direct)


async def _flat(what: str, rounds: int, inside: Turn, outside: Turn) -> list[Result]:
    """The times, and by how much the control plane's memory grew meanwhile."""
    reset_peak(os.getpid())
    before = resident(os.getpid()).now
    ours, direct = await by_turns(rounds, inside, outside)
    grown = (resident(os.getpid()).peak - before) / _MIB
    memory = Result("memory of the control plane meanwhile", [grown], "MiB", target=_FLAT_MIB)
    return [compare(what, ours, "direct", direct), memory]


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
