"""Images in the engine's own store and in containerd's, by what engines answer about them.

The answers have the members that the API's document names for each. With containerd's store, an
id is the digest of a manifest or an index, and what an image does not say is left out.
"""

from typing import Any

import pytest

from images.builder import labels_of
from images.inventory import Presence, _presence
from orchestrator.host.engine.docker_records import engine_info, image, named_images

CONFIG, MANIFEST = f"sha256:{'c' * 64}", f"sha256:{'a' * 64}"
NAME = "paddock/sandbox:latest"
LABELS = {"paddock.protocol": "11"}

# Of an engine 20.10 with its own store.
OWN_INFO = {
    "Driver": "overlay2",
    "DriverStatus": [["Backing Filesystem", "extfs"], ["Supports d_type", "true"]],
}
OWN = {
    "Id": CONFIG,
    "RepoTags": [NAME],
    "RepoDigests": [],
    "Parent": "",
    "Created": "2026-11-27T00:00:00.5Z",
    "Container": "",
    "ContainerConfig": {"Labels": None},
    "Config": {"Labels": LABELS, "Env": ["PATH=/usr/bin"]},
    "Architecture": "amd64",
    "Size": 210_000_000,
    "VirtualSize": 210_000_000,
    "GraphDriver": {"Name": "overlay2", "Data": {}},
    "RootFS": {"Type": "layers", "Layers": [f"sha256:{'1' * 64}"]},
}
OWN_LISTED = {"Id": CONFIG, "RepoTags": [NAME], "RepoDigests": None, "Labels": LABELS}

# Of an engine 29 with containerd's.
CONTAINERD_INFO = {
    "Driver": "overlayfs",
    "DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]],
}
CONTAINERD = {
    "Id": MANIFEST,
    "RepoTags": [NAME],
    "RepoDigests": [f"paddock/sandbox@{MANIFEST}"],
    "Created": "2026-11-27T00:00:00.5Z",
    "Config": {"Labels": LABELS, "Env": ["PATH=/usr/bin"]},
    "Architecture": "amd64",
    "Size": 290_000_000,
    "RootFS": {"Type": "layers", "Layers": [f"sha256:{'1' * 64}"]},
    "Descriptor": {
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "digest": MANIFEST,
        "size": 480,
    },
}
CONTAINERD_LISTED = {
    "Id": MANIFEST,
    "RepoTags": [NAME],
    "RepoDigests": [f"paddock/sandbox@{MANIFEST}"],
    "Labels": LABELS,
    "Containers": -1,
}


@pytest.mark.parametrize(
    ("info", "expected"), [(OWN_INFO, False), (CONTAINERD_INFO, True), ({}, False)]
)
def test_an_engine_says_where_its_images_are(info: dict[str, Any], expected: bool) -> None:
    assert engine_info(info, {}).containerd_images is expected


@pytest.mark.parametrize(
    ("inspected", "listed"), [(OWN, OWN_LISTED), (CONTAINERD, CONTAINERD_LISTED)]
)
def test_an_image_is_the_same_one_asked_for_and_listed(
    inspected: dict[str, Any], listed: dict[str, Any]
) -> None:
    """What sessions have recorded of their image must be found again, by each of its names."""
    found = image(inspected)
    names = [NAME, "paddock/sandbox", found.id, *(listed["RepoDigests"] or ())]
    each = named_images([listed], names)
    assert {name: image.id for name, image in each.items()} == dict.fromkeys(names, found.id)
    assert all(image.labels == LABELS for image in each.values())
    assert labels_of(inspected) == found.labels == LABELS


@pytest.mark.parametrize("inspected", [OWN, CONTAINERD])
def test_an_image_is_shown_with_its_size_and_age(inspected: dict[str, Any]) -> None:
    found = _presence("sandbox", NAME, "the usual", "current", inspected)
    assert (found.id, found.size) == (inspected["Id"], inspected["Size"])
    assert found.created == inspected["Created"]


def test_what_an_image_does_not_say_is_unknown() -> None:
    bare = {"Id": MANIFEST, "Config": None}
    assert labels_of(bare) == image(bare).labels == {}
    assert _presence(None, "x", "", "foreign", bare) == Presence(
        None, "x", "", "foreign", MANIFEST, None, None
    )
