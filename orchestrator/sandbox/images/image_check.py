"""Checks an image that is not ours once, before sessions may have it."""

import platform
from collections.abc import Collection, Iterable
from pathlib import PurePosixPath

from orchestrator.ground.errors import ValidationError
from orchestrator.host.engine.base import Engine, Image, MountedAgent, missing_image
from orchestrator.rules.policy.levels import Level
from orchestrator.sandbox.images.image_facts import ImageFacts, facts_of, parse_environment
from orchestrator.sandbox.images.mounted_agents import MountedAgents
from sandbox_agent.decide.mounted_agent import AGENT, PLACE
from sandbox_agent.decide.protocol import (
    CA_DIR,
    EGRESS_DIR,
    PORTS_DIR,
    QUESTIONS_DIR,
    RUN_DIR,
    WORKSPACE_DIR,
)

# What a container of a sandbox has mounted: a link of the image there would move the mount.
DIRECTORIES = (
    *(PLACE, WORKSPACE_DIR, "/tmp", RUN_DIR, EGRESS_DIR, PORTS_DIR, QUESTIONS_DIR, CA_DIR),  # noqa: S108
    *("/dev/shm", "/dev/mqueue", "/dev/pts", "/proc", "/sys"),  # noqa: S108
)
FILES = ("/etc/passwd", "/etc/group", "/etc/resolv.conf", "/etc/hosts", "/etc/hostname")
# The loader of the mounted agent reads it.
ABSENT = ("/etc/ld.so.preload",)
_LABELS = "paddock."
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_MOST_VOLUMES = 32
# A sandbox has writable directories of its own there.
_REPLACED = (WORKSPACE_DIR, "/tmp")  # noqa: S108


async def refuse_moved_mounts(engine: Engine, image_id: str, targets: Iterable[str]) -> None:
    """Refuses mounts of a session that a link of the image would move elsewhere.

    Raises: ValidationError that names the path; EngineUnavailableError.
    """
    usual = {*with_parents(DIRECTORIES), *FILES}
    others = [path for path in with_parents(targets) if path not in usual]
    if others:
        await engine.refuse_links(image_id, others, (), ())


def hidden_volumes(name: str, image: Image) -> tuple[str, ...]:
    """The volumes of an image of ours, which are empty and read-only in a sandbox.

    They would be writable, and have no limit. Raises: ValidationError if one is where a sandbox has
    files of its own.
    """
    try:
        return _volumes(image.volumes, with_parents(DIRECTORIES)) if image.volumes else ()
    except ValueError as error:
        raise _refused(name, str(error)) from None


async def examine(
    engine: Engine,
    agents: MountedAgents,
    name: str,
    levels: Iterable[Level],
    mounts: Collection[str] = (),
) -> ImageFacts:
    """What the image of that name has. Nothing of it is executed.

    `mounts` are further places at which sessions may have mounts. Raises: ValidationError if no
    session can have the image; EngineUnavailableError.
    """
    image = await engine.image(name)
    if image is None:
        raise missing_image(name)
    directories = with_parents((*DIRECTORIES, *mounts))
    environment, volumes = _check(name, image, directories)
    looked_at = with_parents((*directories, *volumes))
    await engine.refuse_links(image.id, looked_at, FILES, ABSENT)
    agent = MountedAgent(str(await agents.directory()), AGENT, tuple(environment), volumes)
    commands = sorted({each for level in levels for each in level.commands or ()})
    found = await engine.look_into(image.id, agent, environment.get("PATH", ""), commands)
    known = {
        "id": image.id,
        "names": [name],
        "architecture": image.architecture,
        "size": image.size,
        "environment": environment,
        "volumes": list(volumes),
    }
    try:
        return facts_of(known, found)
    except ValueError as error:
        raise _refused(name, f"what was found in it is malformed: {error}") from None


def _check(
    name: str, image: Image, directories: Collection[str]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Checks what the engine says of the image; returns its environment and its volumes.

    Raises: ValidationError.
    """
    wanted = _ARCHITECTURES.get(platform.machine(), platform.machine())
    if image.architecture not in ("", wanted):
        raise _refused(name, f"it is for {image.architecture}, and this host is {wanted}")
    if any(label.startswith(_LABELS) for label in image.labels):
        raise _refused(name, f"it has labels that begin with {_LABELS}, which are for sandboxes")
    try:
        return parse_environment(image.environment), _volumes(image.volumes, directories)
    except ValueError as error:
        raise _refused(name, str(error)) from None


def _volumes(declared: Collection[str], directories: Collection[str]) -> tuple[str, ...]:
    """The volumes in whose place a sandbox has something empty.

    Raises: ValueError if one is where a sandbox has files of its own.
    """
    if len(declared) > _MOST_VOLUMES:
        raise ValueError(f"it declares more than {_MOST_VOLUMES} volumes")
    found: list[str] = []
    for path in sorted(map(PurePosixPath, declared)):
        if not path.is_absolute() or ".." in path.parts:
            raise ValueError("it declares a volume at no absolute path")
        if str(path) in _REPLACED:
            continue
        taken = str(path) in {*directories, *FILES, "/", "/dev"}
        if taken or any(path.is_relative_to(other) for other in _REPLACED):
            raise ValueError(f"it declares the volume {path}, where a sandbox has files")
        found.append(str(path))
    return tuple(found)


def with_parents(paths: Iterable[str]) -> tuple[str, ...]:
    """The paths, and the directories above them; those above come first."""
    found = {"/etc"}
    for path in paths:
        found |= {path, *map(str, PurePosixPath(path).parents)}
    return tuple(sorted(found - {"/"}))


def _refused(name: str, reason: str) -> ValidationError:
    return ValidationError(f"image {name} can't be used: {reason}", field="image")
