"""Images for the machines' engines: copied from this host's engine, without a registry.

The first engine that has loaded an image leaves its layers in a cache, and later ones begin with
hard links to them: layers never change, and linking takes neither time nor space. An engine that
does not take such a beginning loads the image like the first one.
"""

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

import docker
from docker.errors import DockerException, ImageNotFound
from requests.exceptions import RequestException

from scripts.cluster.layout import ClusterError
from scripts.cluster.machines import Machine

CACHE = Path("/var/cache/paddock-cluster")
# What an engine has of images: their descriptions, and their layers.
_PARTS = ("image", "overlay2")
# The newest images that the cache keeps, about 200 MB each.
_KEPT = 2
_SECONDS = 300


def id_of(image: str) -> str:
    """The id of an image of this host's engine. Raises: ClusterError."""
    try:
        with closing(docker.DockerClient(version="auto", timeout=_SECONDS)) as client:
            return str(client.images.get(image).id)
    except ImageNotFound:
        raise ClusterError(f"this host's engine has no {image}: `make image`") from None
    except (DockerException, RequestException) as error:
        raise ClusterError(f"this host's engine does not answer: {error}") from None


def begin(machine: Machine, ids: Mapping[str, str]) -> None:
    """Gives a machine that has not run yet the cached layers of images, if there are any."""
    root, cached = machine.directory / "engine", _cached(ids)
    if root.exists() or not cached.exists():
        return
    root.mkdir(parents=True, mode=0o711)
    for part in _PARTS:
        if not _linked(cached / part, root):
            shutil.rmtree(root)
            return


def give(ids: Mapping[str, str], machines: Sequence[Machine]) -> None:
    """Makes all running engines have images under their names. Raises: ClusterError."""
    lacking = []
    for image, image_id in ids.items():
        lacking = [machine for machine in machines if not machine.has(image_id)]
        if lacking:
            with tempfile.TemporaryDirectory(prefix="paddock-image-") as directory:
                archive = Path(directory) / "image.tar"
                _save(image_id, archive)
                at_once(partial(machine.load, archive) for machine in lacking)
        for machine in machines:
            machine.tag(image_id, image)
    if lacking:
        _keep(lacking[0], ids)


def at_once(tasks: Iterable[Callable[[], object]]) -> None:
    """Runs them in threads, and waits for all. Raises: the first error."""
    listed = list(tasks)
    with ThreadPoolExecutor(len(listed)) as pool:
        for future in [pool.submit(task) for task in listed]:
            future.result()


def _save(image_id: str, archive: Path) -> None:
    try:
        with (
            closing(docker.DockerClient(version="auto", timeout=_SECONDS)) as client,
            archive.open("wb") as file,
        ):
            for chunk in client.images.get(image_id).save():
                file.write(chunk)
    except (DockerException, RequestException) as error:
        raise ClusterError(f"this host's engine does not give its image: {error}") from None


def _keep(machine: Machine, ids: Mapping[str, str]) -> None:
    """Caches the layers of an engine that has no container yet."""
    cached = _cached(ids)
    if cached.exists() or not machine.unused():
        return
    CACHE.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix=".new-") as directory:
        new = Path(directory) / "new"
        new.mkdir()
        if all(_linked(machine.directory / "engine" / part, new) for part in _PARTS):
            try:
                new.rename(cached)
            except OSError:
                return  # another cluster was quicker
    kept = sorted(CACHE.glob("[!.]*"), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in kept[_KEPT:]:
        shutil.rmtree(old, ignore_errors=True)


def _cached(ids: Mapping[str, str]) -> Path:
    """Engines of different versions may write it differently."""
    command = ["dockerd", "--version"]
    version = subprocess.run(command, capture_output=True, check=True, timeout=_SECONDS).stdout
    return CACHE / hashlib.sha256(" ".join(ids.values()).encode() + version).hexdigest()[:16]


def _linked(part: Path, target: Path) -> bool:
    """Whether it was copied by hard links: not if another disk has it."""
    command = ["cp", "--archive", "--link", "--", str(part), str(target)]
    done = subprocess.run(command, capture_output=True, check=False, timeout=_SECONDS)
    return done.returncode == 0
