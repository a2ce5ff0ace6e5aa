"""Rates of the cluster's database: `python -m tests.bench.cluster_store`.

A server of its own on this machine, which syncs each commit, and as many nodes at once as it says.
Each figure is the median of several rounds, which take turns.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from itertools import count
from statistics import median

from orchestrator.cluster.postgres.directory import PostgresDirectory
from tests.support.cluster_store import StoreNode, claim, joined, make_schema, opened
from tests.support.postgres import running

NODES = 8
ROUNDS = 5
SECONDS = 2.0

Act = Callable[[StoreNode, int], Awaitable[object]]


async def rate(nodes: list[StoreNode], act: Act, numbers: "count[int]") -> float:
    """How often all nodes together do it in a second, four at once each."""
    until = time.monotonic() + SECONDS
    done = 0

    async def work(node: StoreNode) -> None:
        nonlocal done
        while time.monotonic() < until:
            await act(node, next(numbers))
            done += 1

    await asyncio.gather(*(work(node) for node in nodes for _ in range(4)))
    return done / SECONDS


async def measure(dsn: str) -> None:
    """Prints the figures."""
    await make_schema(dsn)
    async with AsyncExitStack() as stack:
        nodes = []
        for number in range(NODES):
            database = await stack.enter_async_context(opened(dsn))
            nodes.append(await joined(database, f"node-{number}"))

        async def claims(node: StoreNode, number: int) -> None:
            await node.places.claim(claim(f"s{number}", owner=f"o{number % 50}"))

        async def of_one_key(node: StoreNode, number: int) -> None:
            await node.places.claim(claim(f"s{number}", owner="one"))

        async def renews(node: StoreNode, number: int) -> None:
            await node.lease.renew()

        async def looks(node: StoreNode, number: int) -> None:
            await PostgresDirectory(node.database).place_of(f"s{number % 1000}")

        kinds: dict[str, Act] = {
            "claims": claims,
            "claims of one key": of_one_key,
            "leases": renews,
            "look-ups": looks,
        }
        found: dict[str, list[float]] = {name: [] for name in kinds}
        numbers = count()
        for _ in range(ROUNDS):
            for name, act in kinds.items():
                found[name].append(await rate(nodes, act, numbers))
        print(f"{NODES} nodes, load {os.getloadavg()[0]:.0f}, {os.cpu_count()} cores")
        for name, rates in found.items():
            print(f"{name}: {median(rates):.0f}/s ({min(rates):.0f} to {max(rates):.0f})")


def main() -> None:
    """Makes a server, measures, and removes it."""
    with running() as server:
        server.sql("CREATE DATABASE measured")
        asyncio.run(measure(server.url("measured")))


if __name__ == "__main__":
    main()
