"""A client that downloads, and what its downloads cost the control plane."""

import asyncio
import os
import sys
from collections.abc import Sequence

from tests.bench.memory import reset_peak, resident
from tests.bench.plane import BenchError
from tests.bench.report import Result, compare
from tests.bench.rounds import Side, alternating

MIB = 1024 * 1024
# Buffers of the connections; the downloads held in memory would take 200 MiB.
_FLAT_MIB = 64
# Prints how many seconds each request took, new connections all. The proxy and the roots are in the
# environment.
CLIENT = """
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


async def on_host(
    url: str, times: int = 1, at_once: int = 1, **environment: str
) -> Sequence[float]:
    """The seconds of the client in a process on the host."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", CLIENT, url, str(times), str(at_once)),
        env={**os.environ, **environment},
        stdout=asyncio.subprocess.PIPE,
    )
    printed, _ = await process.communicate()
    if process.returncode:
        raise BenchError("the client on the host failed")
    return [float(each) for each in printed.split()]


async def flat(what: str, rounds: int, inside: Side, outside: Side) -> list[Result]:
    """The times, and by how much the control plane's memory grew meanwhile."""
    reset_peak(os.getpid())
    before = resident(os.getpid()).now
    ours, direct = await alternating(rounds, inside, outside)
    grown = (resident(os.getpid()).peak - before) / MIB
    memory = Result("memory of the control plane meanwhile", [grown], "MiB", target=_FLAT_MIB)
    return [compare(what, ours, "direct", direct), memory]
