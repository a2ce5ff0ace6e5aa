"""Checks of the container engine and the sandbox image."""

import os
import re
import shutil
from collections.abc import Mapping

from orchestrator.ground.check import Check, failure, ok, warning
from orchestrator.ground.errors import PaddockError
from orchestrator.host.engine.base import (
    LABEL_INPUTS,
    Engine,
    EngineInfo,
    Image,
)
from orchestrator.host.engine.fitness import unfit
from orchestrator.host.engine.image_names import build_command, how_to_get, recipe_of
from orchestrator.host.engine.runtimes import unknown_runtime
from orchestrator.host.node.mounts import apart, own_mounts
from orchestrator.operate.checks.network import Tried

ENGINE = "engine"
IMAGE = "image"
LEVEL_IMAGES = "level images"
# The oldest version with which sandboxes were tested.
_OLDEST_ENGINE = (20, 10)


async def check_engine(engine: Engine, runtime: str | None = None) -> Check:
    """Whether the engine answers, can confine sandboxes, and has the configured runtime."""
    try:
        info = await engine.info()
        return engine_check(info, runtime, parser=not info.apparmor or has_parser())
    except PaddockError as error:
        return failure(
            ENGINE,
            error.detail,
            "start the container engine (`make engine`), or name its socket in "
            "PADDOCK_DOCKER_HOST; its socket must be open to this user",
        )


def has_parser() -> bool:
    """Whether the host has the program that loads AppArmor's profiles, as far as is seen here.

    In a container the host's programs can't be seen: then it is taken to be there.
    """
    places = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))
    if shutil.which("apparmor_parser", path=places) is not None:
        return True
    return apart(own_mounts())


def engine_check(info: EngineInfo, runtime: str | None = None, *, parser: bool = True) -> Check:
    """Judges an engine's description of itself.

    `parser`: whether the host has AppArmor's parser, which an engine that uses AppArmor needs to
    start a container.
    """
    detail = f"version {info.version}, cgroup {info.cgroup_version}"
    if info.containerd_images:
        detail += ", containerd image store"
    refused = unfit(info)
    if refused is not None:
        return failure(ENGINE, f"{detail}: {refused.reason}", refused.remedy)
    if info.apparmor and not parser:
        return failure(
            ENGINE,
            f"{detail}, uses AppArmor, but apparmor_parser is missing: it can't start containers",
            "install the package apparmor",
        )
    unknown = unknown_runtime(runtime, info.runtimes)
    if unknown is not None:
        return failure(
            ENGINE,
            f"{detail}: {unknown}",
            "configure it in the engine, or set PADDOCK_RUNTIME to another",
        )
    if info.unlimited:
        return failure(
            ENGINE,
            f"{detail}, can't limit {', '.join(info.unlimited)}",
            "enable these control groups; on Debian the kernel's options are "
            "`cgroup_enable=memory swapaccount=1`",
        )
    if _version(info.version) < _OLDEST_ENGINE:
        oldest = ".".join(map(str, _OLDEST_ENGINE))
        return warning(ENGINE, detail, f"use version {oldest} or later")
    return ok(ENGINE, detail)


def _version(text: str) -> tuple[int, ...]:
    found = re.match(r"(\d+)\.(\d+)", text)
    # A version without a number is a custom build.
    return (int(found[1]), int(found[2])) if found else _OLDEST_ENGINE


async def check_image(engine: Engine, name: str, inputs: str | None = None) -> Check:
    """Whether the image exists and fits; `inputs` is the hash of its sources, if known."""
    try:
        return image_check(name, await engine.image(name), inputs)
    except PaddockError as error:
        return failure(IMAGE, error.detail, f"fix the engine, then {how_to_get(name)}")


def image_check(name: str, image: Image | None, inputs: str | None) -> Check:
    """Judges an image by its labels."""
    if image is None:
        return failure(IMAGE, f"{name} is not on this engine", how_to_get(name))
    if not image.ours:
        return failure(IMAGE, f"{name} is not a sandbox image", _rebuild(name))
    if inputs is not None and image.labels.get(LABEL_INPUTS) != inputs:
        return warning(IMAGE, f"{name} was built from other sources", _rebuild(name))
    return ok(IMAGE, f"{name} is there")


async def check_level_images(engine: Engine, of_levels: Mapping[str, str]) -> Check:
    """Which default images of levels are there; sessions have another one for as long."""
    try:
        found = await engine.images(list(of_levels.values()))
    except PaddockError as error:
        return failure(LEVEL_IMAGES, error.detail, "fix the engine")
    return level_images_check(of_levels, found)


def level_images_check(of_levels: Mapping[str, str], found: Mapping[str, Image]) -> Check:
    """Judges the images by their labels, which those of others do not have.

    Images that Paddock builds by itself may be missing.
    """
    foreign_ones = {name for name, image in found.items() if not image.ours}
    bad = {
        level: name
        for level, name in of_levels.items()
        if name not in foreign_ones and not image_check(name, found.get(name), None).ok
    }
    if not bad:
        return ok(LEVEL_IMAGES, ", ".join(f"{k}: {name}" for k, name in of_levels.items()))
    absent = ", ".join(f"{name}, the default of {level}," for level, name in bad.items())
    detail = f"{absent} can't be used yet: sessions get another image until then"
    foreign = next((name for name in bad.values() if recipe_of(name) is None), None)
    if foreign is not None:
        return warning(LEVEL_IMAGES, detail, how_to_get(foreign))
    commands = ", ".join(f"`{build_command(name)}`" for name in dict.fromkeys(bad.values()))
    return ok(LEVEL_IMAGES, f"{detail}; the first of these has it built, and so does {commands}")


def _rebuild(name: str) -> str:
    command = build_command(name)
    return f"run `{command}`" if command else "build it again on a current image of Paddock's"


async def check_open_network(engine: Engine, image: str, *, rates: bool = False) -> Tried:
    """Whether sandboxes with a network can be kept from the host, and who links them to it.

    Creates the network of this engine object's instance with its rules, and removes it. With
    `rates`, the network's rate must be limitable, too.
    """
    try:
        try:
            opened = await engine.ensure_open_network(image)
            if rates:
                await engine.try_link(image)
        finally:
            await engine.remove_open_network(image)
    except PaddockError as error:
        return Tried(error.detail)
    return Tried(None, own_links=opened.own_links)
