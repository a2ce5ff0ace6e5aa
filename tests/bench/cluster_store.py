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

from gateway.members import Members
from gateway.routing import Routes
from orchestrator.cluster.postgres.directory import PostgresDirectory
from tests.support.cluster_store import StoreNode, claim, joined, make_schema, opened
from tests.support.fake_cluster import no_tls
from tests.support.postgres import running

NODES = 8
ROUNDS = 5
SECONDS = 2.0

Act = Callable[[StoreNode, int], Awaitable[object]]


async def rate(nodes: list[StoreNode], act: Act, numbers: "count[int]", at_once: int) -> float:
    """How often all nodes together do it in a second, so many at once each."""
    until = time.monotonic() + SECONDS
    done = 0

    async def work(node: StoreNode) -> None:
        nonlocal done
        while time.monotonic() < until:
            await act(node, next(numbers))
            done += 1

    await asyncio.gather(*(work(node) for node in nodes for _ in range(at_once)))
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
            await PostgresDirectory(node.database).places_of([f"s{number % 1000}"])

        routes = {}
        for node in nodes:
            directory = PostgresDirectory(node.database)
            routes[id(node)] = Routes(directory, Members(directory, no_tls))
            stack.push_async_callback(routes[id(node)].close)

        async def looks_up(node: StoreNode, number: int) -> None:
            await routes[id(node)].look_up(f"s{number % 1000}")

        kinds: dict[str, tuple[Act, int]] = {
            "claims": (claims, 4),
            "claims of one key": (of_one_key, 4),
            "leases": (renews, 4),
            "look-ups, one by one": (looks, 4),
            "look-ups of gateways with 4 waiting": (looks_up, 4),
            "look-ups of gateways with 32 waiting": (looks_up, 32),
        }
        found: dict[str, list[float]] = {name: [] for name in kinds}
        numbers = count()
        for _ in range(ROUNDS):
            for name, (act, at_once) in kinds.items():
                found[name].append(await rate(nodes, act, numbers, at_once))
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
