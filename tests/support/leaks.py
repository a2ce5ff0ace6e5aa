"""Checks that a state directory's control plane leaves nothing behind."""

import os
import socket
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import docker
import docker.errors

from orchestrator.host.engine.base import LABEL_INSTANCE
from orchestrator.host.workspace.mounts import mounts_under, unmount
from tests.support.limits import WAIT_SECONDS

# The kernel's device events on its netlink socket.
_UEVENTS = 15


def engine_client() -> docker.APIClient:
    """A client of the engine that DOCKER_HOST names, else of the host's."""
    return docker.APIClient(os.environ.get("DOCKER_HOST"), version="auto")


def containers(state_dir: Path) -> list[str]:
    """Names of the instance's containers, in any state.

    The helpers that check the open network's rules in the background end first.
    """
    named = instance(state_dir)
    passing = {f"/paddock-net-{named}", f"/paddock-dns-{named}"}
    client = engine_client()
    try:
        names = _names_of(client, named)
        with suppress(OSError):  # one stays: time-outs of requests are OSErrors
            while passing.intersection(names):
                for name in passing.intersection(names):
                    with suppress(docker.errors.NotFound):
                        client.wait(name.lstrip("/"), timeout=WAIT_SECONDS, condition="removed")
                names = _names_of(client, named)
        return names
    finally:
        client.close()


def _names_of(client: docker.APIClient, instance: str) -> list[str]:
    found = client.containers(all=True, filters={"label": [f"{LABEL_INSTANCE}={instance}"]})
    return [name for container in found for name in container["Names"]]


def end_sandboxes(state_dir: Path) -> None:
    """Removes the instance's containers, which would keep its workspaces mounted for ever."""
    if not (state_dir / "instance").exists():
        return
    client = engine_client()
    try:
        for name in _names_of(client, instance(state_dir)):
            with suppress(docker.errors.NotFound):
                client.remove_container(name, v=True, force=True)
    finally:
        client.close()


def networks(state_dir: Path) -> list[str]:
    """Names of the instance's networks."""
    client = engine_client()
    try:
        label = f"{LABEL_INSTANCE}={instance(state_dir)}"
        return [network["Name"] for network in client.networks(filters={"label": [label]})]
    finally:
        client.close()


def instance(state_dir: Path) -> str:
    """The id in the labels."""
    return (state_dir / "instance").read_text().strip()


def left_behind(state_dir: Path) -> dict[str, list[str]]:
    """Everything of sessions that exists on the host; empty lists if there is nothing."""
    sandboxes = state_dir / "sandboxes"
    return {
        "containers": containers(state_dir),
        "mounts": mounts_under(str(sandboxes)),
        "directories": _names(sandboxes),
    }


NOTHING: dict[str, list[str]] = {"containers": [], "mounts": [], "directories": []}


def workspaces_left(state_dir: Path) -> dict[str, list[str]]:
    """Everything of workspaces on the host; they outlive sessions until they are purged."""
    return {
        "mounts": mounts_under(str(state_dir / "slots")),
        "loop devices": devices_below(state_dir / "slots"),
        "slots": _names(state_dir / "slots"),
        "links": _names(state_dir / "session-workspaces"),
    }


NO_WORKSPACES: dict[str, list[str]] = {
    "mounts": [],
    "loop devices": [],
    "slots": [],
    "links": [],
}


def made_ahead(state_dir: Path) -> dict[str, list[str]]:
    """Everything of slots that were made for future workspaces; none outlives its process."""
    prepared = state_dir / "prepared"
    return {
        "mounts": mounts_under(str(prepared)),
        "loop devices": devices_below(prepared),
        "slots": _names(prepared),
    }


NONE_AHEAD: dict[str, list[str]] = {"mounts": [], "loop devices": [], "slots": []}


def devices_below(directory: Path, seconds: float = WAIT_SECONDS) -> list[str]:
    """Names of the loop devices whose files are in `directory`, removed ones included.

    The kernel frees a device some time after its last unmount, later under load, and reports it in
    an event: this waits for devices that are no longer mounted, whatever others' devices do.
    """

    def passing() -> bool:
        return bool(set(_attached_below(directory)) - _mounted_devices())

    _wait_while(passing, seconds)
    return _attached_below(directory)


def links(state_dir: Path, most: int = 0, seconds: float = WAIT_SECONDS) -> list[str]:
    """Names of the instance's own links to the open network, of which there should be so many.

    The kernel removes them some time after their sandbox's container, and reports it in an event.
    """
    prefix = f"pdk{instance(state_dir)}"

    def found() -> list[str]:
        return [name for name in os.listdir("/sys/class/net") if name[:-4] == prefix]

    _wait_while(lambda: len(found()) > most, seconds)
    return sorted(found())


def _wait_while(passing: Callable[[], bool], seconds: float) -> None:
    """Waits until that is over, or the time; looks again after each device event."""
    until = time.monotonic() + seconds
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _UEVENTS) as events:
        events.bind((0, 1))
        # Listen before looking, so that no event is missed.
        while passing():
            left = until - time.monotonic()
            if left <= 0:
                break
            events.settimeout(left)
            with suppress(TimeoutError):
                events.recv(65536)


def _mounted_devices() -> set[str]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return {line.split(" - ")[1].split()[1].removeprefix("/dev/") for line in lines}


def _attached_below(directory: Path) -> list[str]:
    prefix = f"{directory.resolve()}/"
    return sorted(
        file.parent.parent.name
        for file in Path("/sys/block").glob("loop*/loop/backing_file")
        if _text(file).startswith(prefix)
    )


def assert_kept_are_whole(state_dir: Path) -> None:
    """Each recorded workspace has its slot and its mount, and nothing else has."""
    with closing(sqlite3.connect(state_dir / "paddock.db")) as connection:
        rows = connection.execute("SELECT slot FROM workspaces ORDER BY slot").fetchall()
    slots = [slot for (slot,) in rows]
    left = workspaces_left(state_dir)
    assert left["slots"] == slots
    assert sorted(left["mounts"]) == [f"{state_dir.resolve()}/slots/{slot}/fs" for slot in slots]
    assert len(left["loop devices"]) == len(slots)


def unmount_all(directory: Path) -> None:
    """Unmounts kept workspaces after their control plane's end, to allow their removal."""
    for point in mounts_under(str(directory)):
        unmount(point)
    assert devices_below(directory) == [], "workspaces are in use"


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:  # freed meanwhile
        return ""


def _names(directory: Path) -> list[str]:
    return sorted(os.listdir(directory)) if directory.exists() else []
