"""The bridge for sandboxes with network access, and the host's rules that restrict it.

A short-lived container with the host's network installs the rules, so the control plane itself
needs no privilege over the host's firewall.
"""

import logging
import threading
import time
from typing import Any

import docker
from docker.errors import APIError, NotFound
from docker.types import IPAMConfig

from orchestrator.ground.errors import EngineUnavailableError
from orchestrator.host.engine.base import LABEL_INSTANCE, LABEL_LINK
from orchestrator.host.engine.docker_helper import network_helper, run_helper
from orchestrator.host.engine.docker_links import Links, halved
from orchestrator.host.engine.docker_resolvers import host_resolvers

# Rules are trusted for this long after a check, because the firewall may be flushed.
TRUST_SECONDS = 60.0

BRIDGE_NAME = "com.docker.network.bridge.name"
BRIDGE_ICC = "com.docker.network.bridge.enable_icc"

# Packets from the bridge to any address of the host pass INPUT; packets to link-local addresses
# elsewhere (cloud metadata) pass DOCKER-USER. Of the two iptables back ends, the rules must go to
# the one that Docker uses. Docker removes its rule for a moment whenever it makes a network, so the
# script looks for the rule more than once. Packets between sandboxes stay within the bridge; the
# kernel shows them to iptables only while a setting of the host says so. Docker sets it when it
# makes the bridge, but anyone may clear it. Name servers that the operator set may be at those
# addresses, too. A chain with the bridge's name, refilled each time and placed before the other
# rules, accepts lookups to them. Ports of ours have names that begin with the bridge's; if somebody
# removes the bridge, their packets are not the bridge's any more.
RULES_SCRIPT = """\
set -eu
action=$1 bridge=$2 backend=
shift 2
resolvers=$*
for attempt in 1 2 3 4 5 6 7 8 9 10; do
    for candidate in nft legacy; do
        if "iptables-$candidate" -w 5 -C FORWARD -j DOCKER-USER 2>/dev/null; then
            backend=$candidate
            break 2
        fi
    done
    sleep 0.2
done
if [ -z "$backend" ]; then
    echo "the engine's DOCKER-USER chain was not found: it must filter by iptables" \
        '("iptables": true, and no "firewall-backend": "nftables" in its daemon.json)' >&2
    exit 1
fi
if [ "$action" = install ] && grep -q "^ *$bridge:" /proc/net/dev &&
    ! grep -qs 1 /proc/sys/net/bridge/bridge-nf-call-iptables; then
    echo "sandboxes could reach each other: set net.bridge.bridge-nf-call-iptables to 1" >&2
    exit 1
fi
drop() {
    tables=$1 chain=$2 interface=$3
    shift 3
    case $action in
    install)
        "$tables" -w 5 -C "$chain" -i "$interface" "$@" -j DROP 2>/dev/null ||
            "$tables" -w 5 -I "$chain" -i "$interface" "$@" -j DROP
        ;;
    remove)
        while "$tables" -w 5 -D "$chain" -i "$interface" "$@" -j DROP 2>/dev/null; do :; done
        ;;
    esac
}
lookups() {
    for chain in DOCKER-USER INPUT; do
        while "iptables-$backend" -w 5 -D "$chain" -i "$bridge" -j "$bridge" 2>/dev/null; do :; done
    done
    "iptables-$backend" -w 5 -F "$bridge" 2>/dev/null || :
    "iptables-$backend" -w 5 -X "$bridge" 2>/dev/null || :
    if [ "$action" = remove ] || [ -z "$resolvers" ]; then
        return
    fi
    "iptables-$backend" -w 5 -N "$bridge"
    for address in $resolvers; do
        for protocol in udp tcp; do
            "iptables-$backend" -w 5 -A "$bridge" -d "$address" -p "$protocol" --dport 53 -j ACCEPT
        done
    done
    for chain in DOCKER-USER INPUT; do
        "iptables-$backend" -w 5 -I "$chain" -i "$bridge" -j "$bridge"
    done
}
drop "iptables-$backend" DOCKER-USER "$bridge" -d 169.254.0.0/16
for interface in "$bridge" "$bridge+"; do
    drop "iptables-$backend" INPUT "$interface"
    if [ -e /proc/net/if_inet6 ]; then
        drop "ip6tables-$backend" INPUT "$interface"
    fi
done
lookups
"""

_log = logging.getLogger(__name__)


class Bridge:
    """This instance's bridge. Its methods block and may be called from any thread."""

    # What `ensure` waits for: the rules, the bridge, the bridge with room for links of ours, the
    # rules again, the name servers.
    STEPS = 5

    def __init__(self, instance: str, resolvers: tuple[str, ...] = ()) -> None:
        """`resolvers` are the operator's; without them, those of the engine's host are used."""
        self.name = f"paddock-open-{instance}"
        self.bridge = f"pdk{instance}"[:15]  # the kernel's limit for interface names
        self._instance = instance
        self._helper = f"paddock-net-{instance}"
        self._lock = threading.Lock()
        self._trusted_until = 0.0
        self._set_resolvers = resolvers
        self.resolvers = resolvers
        self.links = Links(self.bridge)
        self._pool: IPAMConfig | None = None

    def trusted(self) -> bool:
        """Whether the rules were in place recently."""
        return time.monotonic() < self._trusted_until

    def distrust(self) -> None:
        """Makes the next `ensure` check again."""
        self._trusted_until = 0.0

    def ensure(self, client: docker.APIClient, image: str, *, renew: bool = False) -> None:
        """Installs the rules, then makes the bridge, so it never exists without them.

        The kernel's setting for the bridge's packets can only be checked once there is a bridge.
        `renew`: also if the rules are trusted, which they are not after a failure.

        Raises: EngineUnavailableError, docker's errors; whatever was made is removed.
        """
        with self._lock:
            if renew or not self.trusted():
                self._check(client, image)

    def _check(self, client: docker.APIClient, image: str) -> None:
        try:
            self._run_helper(client, image, "install")
            if self._ensure_bridge(client):
                self._run_helper(client, image, "install")
                self.links.reconnect()
            if not self._set_resolvers:
                self.resolvers = host_resolvers(client, image, self._instance)
        except BaseException:
            self.distrust()
            self._undo(client, image)
            raise
        self._trusted_until = time.monotonic() + TRUST_SECONDS

    def remove(self, client: docker.APIClient, image: str) -> None:
        """Removes the bridge, then the rules. Does nothing while a container uses the bridge."""
        with self._lock:
            self.distrust()
            if self._remove_bridge(client):
                self._run_helper(client, image, "remove")

    def _undo(self, client: docker.APIClient, image: str) -> None:
        try:
            if self._remove_bridge(client):
                self._run_helper(client, image, "remove")
        except (EngineUnavailableError, docker.errors.DockerException, OSError) as error:
            # Without the bridge, the rules match nothing.
            _log.warning("the rules of %s could not be removed: %s", self.bridge, str(error))

    def _ensure_bridge(self, client: docker.APIClient) -> bool:
        """Whether the bridge is new."""
        try:
            found, new = client.inspect_network(self.name), False
        except NotFound:
            # With its earlier addresses, if it was removed while sandboxes have some.
            found, new = self._made(client, self._pool), True
        if found.get("Driver") != "bridge" or not self._options.items() <= found["Options"].items():
            raise EngineUnavailableError(
                f"the network {self.name} has the wrong options: remove it"
            )
        return self._leave_room(client, found) or new

    def _leave_room(self, client: docker.APIClient, found: dict[str, Any]) -> bool:
        """Leaves addresses to links of ours, if they can be made; whether the bridge is new then.

        The engine chooses the addresses. So the network is made a second time with these, of which
        the engine gives away one half only. While containers of an earlier version use the network,
        it stays, and the engine makes the links.
        """
        network, anew = self.links.possible(found), False
        if network is not None and not halved(found) and not found.get("Containers"):
            anew = self._remove_bridge(client)
            if anew:
                found = self._made(client, network.pool)
        self.links.network = network if halved(found) else None
        if self.links.network is not None:
            self._pool = self.links.network.pool
        return anew

    @property
    def _options(self) -> dict[str, str]:
        return {BRIDGE_NAME: self.bridge, BRIDGE_ICC: "false"}

    def _made(self, client: docker.APIClient, pool: IPAMConfig | None) -> dict[str, Any]:
        """The network, made with the addresses of `pool`; None: the engine chooses them."""
        try:
            client.create_network(
                self.name,
                driver="bridge",
                options=self._options,
                ipam=pool,
                labels={LABEL_INSTANCE: self._instance},
                enable_ipv6=False,
            )
        except APIError:
            if pool is None:
                raise
            # Another network has these addresses meanwhile.
            return self._made(client, None)
        found: dict[str, Any] = client.inspect_network(self.name)
        return found

    def _remove_bridge(self, client: docker.APIClient) -> bool:
        """Whether the bridge is gone; a bridge in use stays."""
        if self._linked(client):
            return False
        try:
            client.remove_network(self.name)
        except NotFound:
            pass
        except APIError as error:
            if error.status_code == 403:  # it has active endpoints
                return False
            raise
        self.links.network = None
        return True

    def _linked(self, client: docker.APIClient) -> bool:
        """Whether a container has a link that the engine does not know of."""
        labels = [f"{LABEL_INSTANCE}={self._instance}", LABEL_LINK]
        return bool(client.containers(filters={"label": labels}))

    def _run_helper(self, client: docker.APIClient, image: str, action: str) -> None:
        arguments = (action, self.bridge, *self._set_resolvers)
        run_helper(
            client,
            self._helper,
            network_helper(image, self._instance, "host", RULES_SCRIPT, *arguments),
            "the rules of the open network could not be set",
        )
