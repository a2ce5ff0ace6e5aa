"""The network between machines: a bridge in a network namespace of its own, and plugs in it.

The bridge is not in the host's namespace, so the host's packet filter decides nothing about what
machines say to each other. The host has one link to it. Machines reach nothing else.
"""

import fcntl
import json
import os
import random
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts.cluster.layout import ClusterError, Layout

# RFC 2544 keeps 198.18.0.0/15 for tests of networks: no network has these addresses.
_NETWORKS = [f"198.{second}.{third}" for second in (18, 19) for third in range(256)]
_LOCK = Path("/run/paddock-cluster.lock")
_NAMESPACES = Path("/run/netns")
_SECONDS = 60


def make(layout: Layout, network: str) -> None:
    """Makes bridge and link, where they are missing. Raises: ClusterError."""
    _namespace(layout.switch)
    if not _has(layout.switch, "switch"):
        _ip("-n", layout.switch, "link", "add", "switch", "type", "bridge")
    _ip("-n", layout.switch, "link", "set", "switch", "up")
    if not _has(layout.switch, "host"):
        end = ("peer", "name", "host", "netns", layout.switch)
        _ip("link", "add", layout.switch, "type", "veth", *end)
    _ip("-n", layout.switch, "link", "set", "host", "master", "switch", "up")
    _ip("address", "replace", f"{network}.1/24", "dev", layout.switch)
    _ip("link", "set", layout.switch, "up")


def make_database(layout: Layout, address: str) -> None:
    """Makes the database's namespace and plug, where they are missing. Raises: ClusterError."""
    name, switch = layout.database_network, layout.switch
    _namespace(name)
    if not _has(name, "eth0"):
        end = ("peer", "name", "database", "netns", switch)
        _ip("link", "add", "eth0", "netns", name, "type", "veth", *end)
    _ip("-n", switch, "link", "set", "database", "master", "switch", "up")
    _ip("-n", name, "address", "replace", f"{address}/24", "dev", "eth0")
    for link in ("eth0", "lo"):
        _ip("-n", name, "link", "set", link, "up")


def within(namespace: str) -> list[str]:
    """The start of a command that runs with this namespace's network."""
    return ["nsenter", f"--net={_NAMESPACES / namespace}"]


def cut(layout: Layout, plug: str) -> None:
    """Unplugs a node or the database: nothing that is sent arrives, and nobody is told."""
    _ip("-n", layout.switch, "link", "set", plug, "down")


def heal(layout: Layout, plug: str) -> None:
    """Plugs it in again; connections that still wait go on."""
    _ip("-n", layout.switch, "link", "set", plug, "up")


def remove(layout: Layout) -> None:
    """Removes what `make` and `make_database` made, as far as it is there. Raises: ClusterError."""
    if Path("/sys/class/net", layout.switch).exists():
        _ip("link", "delete", layout.switch)
    for namespace in (layout.database_network, layout.switch):
        if (_NAMESPACES / namespace).exists():
            _ip("netns", "delete", namespace)


def left(layout: Layout) -> list[str]:
    """What there is of it."""
    found = [_NAMESPACES / name for name in (layout.database_network, layout.switch)]
    found.append(Path("/sys/class/net", layout.switch))
    return [str(path) for path in found if path.exists()]


@contextmanager
def free_network() -> Iterator[str]:
    """A network that nothing on this host has an address in, until the context ends."""
    with _LOCK.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        links = json.loads(_ip("-json", "address"))
        used = {entry["local"] for link in links for entry in link.get("addr_info", ())}
        networks = {address.rpartition(".")[0] for address in used}
        yield random.choice([each for each in _NETWORKS if each not in networks])  # noqa: S311


def _namespace(name: str) -> None:
    path = _NAMESPACES / name
    # The host's restart leaves a file where /run is on a disk.
    if path.exists() and not os.path.ismount(path):
        path.unlink()
    if not path.exists():
        _ip("netns", "add", name)


def _has(namespace: str, link: str) -> bool:
    return link in {each["ifname"] for each in json.loads(_ip("-n", namespace, "-json", "link"))}


def _ip(*arguments: str) -> str:
    done = subprocess.run(
        ["ip", *arguments], capture_output=True, text=True, timeout=_SECONDS, check=False
    )
    if done.returncode:
        said = done.stderr.strip() or f"status {done.returncode}"
        raise ClusterError(f"`ip {' '.join(arguments)}`: {said}")
    return done.stdout
