"""What a host's restart leaves of a control plane, produced behind its back.

The processes and the mounts are gone, and with them the loop devices. Files stay: the database,
images of workspaces, sockets and pid files. The engine keeps its containers, which have ended, and
its networks.
"""

from contextlib import closing
from pathlib import Path

from tests.support.leaks import containers, end_sandboxes, engine_client, unmount_all


def restart_host(state_dir: Path, *, containers_gone: bool) -> None:
    """Ends everything that a restart ends, after the control plane was killed.

    With `containers_gone`, the engine has lost its containers, as with a data directory in memory.
    """
    if containers_gone:
        end_sandboxes(state_dir)
    else:
        with closing(engine_client()) as client:
            for name in (each.strip("/") for each in containers(state_dir)):
                if client.inspect_container(name)["State"]["Paused"]:
                    client.unpause(name)
                client.kill(name)
                client.wait(name)
    unmount_all(state_dir)
