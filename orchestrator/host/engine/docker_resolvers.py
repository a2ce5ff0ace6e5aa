"""Name servers of sandboxes with a network.

On a user-defined network, the engine answers lookups in each container and reveals the names and
addresses of all its neighbors. Sandboxes therefore use the name servers of the host or the
operator, and can't reach the engine's.
"""

import docker

from orchestrator.host.engine.base import LABEL_LINK
from orchestrator.host.engine.docker_helper import network_helper, run_helper
from orchestrator.host.engine.docker_namespaces import ran_inside
from orchestrator.settings.resolvers import usable

# Docker's own name server, in every container of a user-defined network.
ENGINES_OWN = "127.0.0.11"
# It listens on changing ports. The lookup port is translated to them before the packet reaches this
# table, so no rule that the engine later adds to its own table bypasses this one.
CLOSE_SCRIPT = """\
set -eu
for backend in nft legacy; do
    for answer in REJECT DROP; do
        if "iptables-$backend" -w 5 -I OUTPUT -d "$1" -j "$answer" 2>/dev/null &&
            "iptables-$backend" -w 5 -C OUTPUT -d "$1" -j "$answer"; then
            exit 0
        fi
    done
done
echo "iptables can't hold it back" >&2
exit 1
"""


def host_resolvers(client: docker.APIClient, image: str, instance: str) -> tuple[str, ...]:
    """The name servers of a container without a network: the host's, without loopback addresses.

    Raises: EngineUnavailableError, docker's errors.
    """
    resolv_conf = run_helper(
        client,
        f"paddock-dns-{instance}",
        network_helper(image, instance, "none", "cat /etc/resolv.conf", capabilities=()),
        "the host's name servers could not be read",
    )
    return usable(resolv_conf)


def close_engines_own(
    client: docker.APIClient, image: str, instance: str, container_id: str
) -> None:
    """Blocks the engine's name server for a running container, if need be by a helper container.

    Raises: EngineUnavailableError, docker's errors; the container must not be used then.
    """
    container = client.inspect_container(container_id)
    if LABEL_LINK in container["Config"]["Labels"]:
        return  # without a network of the engine, there is none
    if ran_inside(container, CLOSE_SCRIPT, ENGINES_OWN):
        return
    network = f"container:{container_id}"
    run_helper(
        client,
        f"paddock-net-{instance}-{container_id[:12]}",
        network_helper(image, instance, network, CLOSE_SCRIPT, ENGINES_OWN),
        "the engine's name server could not be taken from the sandbox",
    )
