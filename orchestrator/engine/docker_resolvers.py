"""Name servers of sandboxes with a network.

On a network of one's own the engine answers lookups in each container, and tells names and
addresses of all others on it. So sandboxes ask the host's name servers, or the operator's, and
the engine's is out of their reach.
"""

import docker

from orchestrator.engine.docker_helper import network_helper, run_helper
from orchestrator.engine.resolvers import usable

# Docker's own, in every container of a user-defined network.
ENGINES_OWN = "127.0.0.11"
# It listens on ports that change, to which the port of lookups is translated before the packet
# comes here. Whatever the engine adds to its own table later, it does not get past this one.
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
    """What the engine tells containers without a network: it has the host's, without loopback.

    Raises: EngineUnavailableError, docker's errors.
    """
    said = run_helper(
        client,
        f"paddock-dns-{instance}",
        network_helper(image, instance, "none", "cat /etc/resolv.conf", capabilities=()),
        "the host's name servers could not be read",
    )
    return usable(said)


def close_engines_own(
    client: docker.APIClient, image: str, instance: str, container_id: str
) -> None:
    """Takes the engine's name server from a container that runs.

    Raises: EngineUnavailableError, docker's errors: the container is not to be used then.
    """
    network = f"container:{container_id}"
    run_helper(
        client,
        f"paddock-net-{instance}-{container_id[:12]}",
        network_helper(image, instance, network, CLOSE_SCRIPT, ENGINES_OWN),
        "the engine's name server could not be taken from the sandbox",
    )
