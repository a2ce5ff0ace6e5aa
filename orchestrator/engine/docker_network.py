"""The bridge for sandboxes with network access, and the host's rules that bound it.

A one-shot container with the host's network installs the rules, so that the control
plane itself needs no privilege over the host's firewall.
"""

import logging
import threading
import time
from typing import Any

import docker
from docker.errors import APIError, ImageNotFound, NotFound

from orchestrator.engine.base import LABEL_INSTANCE, missing_image
from orchestrator.engine.docker_spec import log_config
from orchestrator.errors import EngineUnavailableError

# Rules that were seen in place are trusted for so long: somebody may flush the firewall.
TRUST_SECONDS = 60.0
HELPER_SECONDS = 20

BRIDGE_NAME = "com.docker.network.bridge.name"
BRIDGE_ICC = "com.docker.network.bridge.enable_icc"

# Everything that arrives from the bridge for an address of the host, whichever, passes
# INPUT; link-local destinations elsewhere (cloud metadata) pass DOCKER-USER. Of the two
# iptables back ends the one that Docker uses is the right one.
RULES_SCRIPT = """\
set -eu
action=$1 bridge=$2 backend=
for candidate in nft legacy; do
    if "iptables-$candidate" -w 5 -C FORWARD -j DOCKER-USER 2>/dev/null; then
        backend=$candidate
        break
    fi
done
if [ -z "$backend" ]; then
    echo "the engine's DOCKER-USER chain was not found" >&2
    exit 1
fi
drop() {
    tables=$1 chain=$2
    shift 2
    case $action in
    install)
        "$tables" -w 5 -C "$chain" -i "$bridge" "$@" -j DROP 2>/dev/null ||
            "$tables" -w 5 -I "$chain" -i "$bridge" "$@" -j DROP
        ;;
    remove)
        while "$tables" -w 5 -D "$chain" -i "$bridge" "$@" -j DROP 2>/dev/null; do :; done
        ;;
    esac
}
drop "iptables-$backend" DOCKER-USER -d 169.254.0.0/16
drop "iptables-$backend" INPUT
if [ -e /proc/net/if_inet6 ]; then
    drop "ip6tables-$backend" INPUT
fi
"""

_log = logging.getLogger(__name__)


class OpenNetwork:
    """This instance's bridge; its methods block and may be called from any thread."""

    def __init__(self, instance: str) -> None:
        self.name = f"paddock-open-{instance}"
        self.bridge = f"pdk{instance}"[:15]  # the kernel's limit for interface names
        self._instance = instance
        self._helper = f"paddock-net-{instance}"
        self._lock = threading.Lock()
        self._trusted_until = 0.0

    def trusted(self) -> bool:
        """Whether the rules were in place a moment ago."""
        return time.monotonic() < self._trusted_until

    def distrust(self) -> None:
        """The next `ensure` looks again."""
        self._trusted_until = 0.0

    def ensure(self, client: docker.APIClient, image: str) -> None:
        """Installs the rules, then makes the bridge: it never exists without them.

        Raises: EngineUnavailableError, docker's errors; what was made is removed.
        """
        with self._lock:
            if self.trusted():
                return
            try:
                self._run_helper(client, image, "install")
                self._ensure_bridge(client)
            except BaseException:
                self._undo(client, image)
                raise
            self._trusted_until = time.monotonic() + TRUST_SECONDS

    def remove(self, client: docker.APIClient, image: str) -> None:
        """Removes the bridge, then the rules; nothing happens while a container uses it."""
        with self._lock:
            self.distrust()
            if self._remove_bridge(client):
                self._run_helper(client, image, "remove")

    def _undo(self, client: docker.APIClient, image: str) -> None:
        try:
            if self._remove_bridge(client):
                self._run_helper(client, image, "remove")
        except (EngineUnavailableError, docker.errors.DockerException, OSError) as error:
            # Without the bridge the rules match nothing.
            _log.warning("the rules of %s could not be removed: %s", self.bridge, str(error))

    def _ensure_bridge(self, client: docker.APIClient) -> None:
        options = {BRIDGE_NAME: self.bridge, BRIDGE_ICC: "false"}
        try:
            found = client.inspect_network(self.name)
        except NotFound:
            client.create_network(
                self.name,
                driver="bridge",
                options=options,
                labels={LABEL_INSTANCE: self._instance},
                enable_ipv6=False,
            )
            return
        if found.get("Driver") != "bridge" or not options.items() <= found["Options"].items():
            raise EngineUnavailableError(
                f"the network {self.name} has other options than it must: remove it"
            )

    def _remove_bridge(self, client: docker.APIClient) -> bool:
        """Whether it is gone; a bridge in use stays."""
        try:
            client.remove_network(self.name)
        except NotFound:
            return True
        except APIError as error:
            if error.status_code == 403:  # it has active endpoints
                return False
            raise
        return True

    def _run_helper(self, client: docker.APIClient, image: str, action: str) -> None:
        self._remove_helper(client)  # one that a killed control plane left
        try:
            config = helper_config(image, self._instance, action, self.bridge)
            try:
                made = client.create_container_from_config(  # type: ignore[no-untyped-call]
                    config, self._helper
                )
            except ImageNotFound as error:
                raise missing_image(image) from error
            client.start(made["Id"])
            code = client.wait(made["Id"], timeout=HELPER_SECONDS)["StatusCode"]
            if code != 0:
                output = client.logs(made["Id"], tail=5).decode(errors="replace").strip()
                raise EngineUnavailableError(
                    f"the rules of the open network could not be set: {output[:500]}"
                )
        finally:
            self._remove_helper(client)

    def _remove_helper(self, client: docker.APIClient) -> None:
        try:
            client.remove_container(self._helper, force=True)
        except NotFound:
            return


def helper_config(image: str, instance: str, action: str, bridge: str) -> dict[str, Any]:
    """The container that installs or removes the rules: `action` is install or remove."""
    return {
        "Image": image,
        "User": "0",
        "Entrypoint": ["/bin/sh", "-c", RULES_SCRIPT, "sh", action, bridge],
        "Labels": {LABEL_INSTANCE: instance},
        "HostConfig": {
            "NetworkMode": "host",
            "CapDrop": ["ALL"],
            "CapAdd": ["NET_ADMIN", "NET_RAW"],
            "SecurityOpt": ["no-new-privileges"],
            "ReadonlyRootfs": True,
            "Tmpfs": {"/run": "size=65536,mode=700"},  # for iptables' lock
            "Memory": 64 * 2**20,
            "PidsLimit": 32,
            "RestartPolicy": {"Name": "no"},
            "LogConfig": log_config(),
        },
    }
