"""Brings and checks images that were not built on Paddock's."""

import secrets
from collections.abc import Iterable
from contextlib import closing

from docker.errors import DockerException
from requests.exceptions import RequestException

from images import base
from images.builder import labels_of
from images.errors import BuildError
from orchestrator.host.engine.base import LABEL_IMAGE, LABEL_PROTOCOL
from orchestrator.host.engine.docker import DockerEngine
from orchestrator.host.engine.image_names import build_command
from orchestrator.rules.policy.levels import Level
from orchestrator.sandbox.images.checked_images import CheckedImages
from orchestrator.sandbox.images.image_check import examine
from orchestrator.sandbox.images.image_facts import ImageFacts
from orchestrator.sandbox.images.mounted_agents import MountedAgents
from orchestrator.settings.settings import Settings

_SILENCE_SECONDS = 30


def bring(name: str, reference: str | None, report: base.Report) -> None:
    """Pulls an image that the engine does not have, and gives it the name.

    One of Paddock's own is not pulled: in a registry, its name may be somebody else's. Raises:
    BuildError if there is none.
    """
    source = reference or name
    if build_command(source) is not None:
        return
    try:
        with closing(base.connect(_SILENCE_SECONDS)) as client:
            if base.inspect(client, source) is None and not base.pull(source, report):
                raise BuildError(f"image {source} is neither on the engine nor in a registry")
            if reference is not None:
                repository, _, tag = name.partition("@")[0].rpartition(":")
                named = (repository, tag) if repository and "/" not in tag else (name, "latest")
                client.tag(source, *named)
    except (DockerException, RequestException) as error:
        raise BuildError(f"the engine refused or did not answer: {error}") from error


def is_ours(name: str) -> bool:
    """Whether it is one of Paddock's own, or says that it was made from one. Raises: BuildError."""
    if build_command(name) is not None:
        return True
    try:
        with closing(base.connect(_SILENCE_SECONDS)) as client:
            found = base.inspect(client, name)
    except (DockerException, RequestException) as error:
        raise BuildError(f"the engine refused or did not answer: {error}") from error
    return found is not None and not {LABEL_IMAGE, LABEL_PROTOCOL}.isdisjoint(labels_of(found))


async def check(name: str, settings: Settings, levels: Iterable[Level]) -> ImageFacts:
    """Checks the image, and keeps what was found. Raises: PaddockError, ConfigError."""
    engine = DockerEngine(
        secrets.token_hex(4), host=settings.docker_host, timeout=settings.engine_timeout, threads=1
    )
    try:
        agents = MountedAgents(engine, settings.state_dir, settings.image)
        targets = [mount.target for mount in settings.mounts.values()]
        facts = await examine(engine, agents, name, levels, targets)
    finally:
        await engine.close()
    CheckedImages(settings.state_dir).keep(facts)
    return facts
