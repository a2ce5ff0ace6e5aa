"""Whether sandboxes on the open network are kept from the host, and what the host lacks for it."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from orchestrator.ground.check import Check, ok, warning

NETWORK = "open network"
UNTRIED = "without the image it can't be tried"
_LATE = re.compile(r"within [\d.]+ s\b|in time")
_NOT_LOADED = (
    "`modprobe br_netfilter`, which filters packets within a bridge, and write its name to "
    "/etc/modules-load.d/paddock.conf for the next boot"
)
_NOT_FILTERED = (
    "`sysctl -w net.bridge.bridge-nf-call-iptables=1`, and the same in /etc/sysctl.d/ for the next "
    "boot"
)
_NFTABLES = 'set `"firewall-backend": "iptables"` in the engine\'s daemon.json, and restart it'
_SLOW = "if the host is only slow, set PADDOCK_ENGINE_TIMEOUT to more seconds"
_USUAL = "the engine's host needs iptables (legacy or nft) for its bridges"
_DEFAULT_IPV4, _DEFAULT_IPV6 = "00000000", f"{'0' * 32} 00"


@dataclass(frozen=True, slots=True)
class Tried:
    """What a try of it said: why it can't be had, or who links sandboxes to it."""

    refused: str | None
    own_links: bool = False  # the control plane itself does


@dataclass(frozen=True, slots=True)
class NetworkFacts:
    """What decides about bridges on the engine's host.

    `bridge_filter` is the setting that shows iptables the packets within a bridge: None while its
    module is not loaded. `backend` is what the engine filters by, None if it does not say so.
    `ipv4` and `ipv6` say whether there is a default route; `firewalld` whether it is active.
    """

    bridge_filter: str | None
    backend: str | None
    ipv4: bool
    ipv6: bool
    firewalld: bool


def network_facts(backend: str | None, root: Path = Path("/")) -> NetworkFacts:
    """Looks at this host, which is the engine's."""
    unit = root / "run/systemd/units/invocation:firewalld.service"
    return NetworkFacts(
        _text(root / "proc/sys/net/bridge/bridge-nf-call-iptables"),
        backend,
        has_default_route(_text(root / "proc/net/route") or ""),
        has_default_route6(_text(root / "proc/net/ipv6_route") or ""),
        os.path.lexists(unit) or "firewalld" in (backend or ""),
    )


def has_default_route(routes: str) -> bool:
    """Whether /proc/net/route has a route to everywhere that is up. Pure."""
    lines = (line.split() for line in routes.splitlines()[1:])
    return any(
        len(line) > 7 and line[1] == line[7] == _DEFAULT_IPV4 and int(line[3], 16) & 1
        for line in lines
    )


def has_default_route6(routes: str) -> bool:
    """The same of /proc/net/ipv6_route, which also lists what is refused, at `lo`. Pure."""
    lines = (line for line in routes.splitlines() if line.startswith(_DEFAULT_IPV6))
    return any(line.split()[-1] != "lo" for line in lines)


def network_check(tried: Tried, facts: NetworkFacts) -> Check:
    """Judges the open network by what a try of it said. Pure."""
    if tried.refused is not None:
        return warning(NETWORK, tried.refused, _remedy(tried.refused, facts))
    if not facts.ipv4 and facts.ipv6:
        return warning(
            NETWORK,
            "the host is connected by IPv6 only, and this network has none: sandboxes on it reach "
            "nothing outside",
            'use levels with `network = "egress"`: the way out connects from the host',
        )
    if facts.firewalld:
        return warning(
            NETWORK,
            "sandboxes on it are kept from the host, but a reload of firewalld takes the rules "
            "away until their next check, up to a minute later",
            "reload firewalld only while no session has this network",
        )
    by = "this process" if tried.own_links else "the engine"
    return ok(NETWORK, f"sandboxes on it are kept from the host; {by} links them to it")


def _remedy(refused: str, facts: NetworkFacts) -> str:
    if refused == UNTRIED:
        return "fix what the image's check reports"
    if _LATE.search(refused):
        return _SLOW
    if (facts.backend or "").startswith("nftables"):
        return _NFTABLES
    if facts.bridge_filter is None:
        return _NOT_LOADED
    if facts.bridge_filter == "0":
        return _NOT_FILTERED
    return _USUAL


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
