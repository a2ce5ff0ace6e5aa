"""Images of a real engine as files: exported, removed and imported, they are the same images."""

import io
import json
import secrets
import tarfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import docker
import pytest

from tests.support.cli import run


@pytest.fixture(scope="module")
def names() -> Iterator[list[str]]:
    """Two small images, of which the second has a layer more."""
    repository = f"files-{secrets.token_hex(4)}"
    names = [f"{repository}:one", f"{repository}:two"]
    with closing(docker.APIClient(version="auto")) as client:
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w") as archive:
            member = tarfile.TarInfo("file")
            member.size = 5
            archive.addfile(member, io.BytesIO(b"first"))
        client.import_image_from_data(content.getvalue(), repository, "one")
        recipe = io.BytesIO(f"FROM {names[0]}\nCOPY Dockerfile /second\nENV A=b\n".encode())
        list(client.build(fileobj=recipe, tag=names[1], rm=True, decode=True))
        yield names
        for name in names:
            client.remove_image(name, force=True)


def facts(client: docker.APIClient, name: str) -> dict[str, Any]:
    """What an image is, without where it came from."""
    found = client.inspect_image(name)  # type: ignore[no-untyped-call]
    return {key: found[key] for key in ("Id", "RepoTags", "Config", "RootFS", "Created")}


def test_images_leave_and_come_back(names: list[str], tmp_path: Path) -> None:
    file, again = tmp_path / "images.tar.gz", tmp_path / "again.tar.gz"
    done = run("images", "export", str(file), *names, "--json")
    assert (done.status, done.err) == (0, "")
    told = json.loads(done.out)
    assert [each["name"] for each in told["images"]] == names
    assert run("images", "export", str(again), *reversed(names)).status == 0
    assert again.read_bytes() == file.read_bytes()
    refused = run("images", "export", str(file), names[0])
    assert (refused.status, "exists" in refused.line) == (1, True)
    with closing(docker.APIClient(version="auto")) as client:
        before = {name: facts(client, name) for name in names}
        for name in reversed(names):
            client.remove_image(name)
        done = run("images", "import", str(file), "--sha256", told["sha256"], "--json")
        assert (done.status, done.err) == (0, "")
        loaded = {each["name"]: each for each in json.loads(done.out)["images"]}
        assert all(each["replaced"] is None for each in loaded.values())
        assert before == {name: facts(client, name) for name in names}
        # A name that has another image by now gets back the one of the file, and that is said.
        repository, tag = names[1].split(":")
        client.tag(names[0], repository, tag)
        done = run("images", "import", str(file))
        assert f"{names[1]} was {before[names[0]]['Id']} before" in done.err
        assert facts(client, names[1]) == before[names[1]]


def test_what_is_damaged_or_missing_changes_nothing(names: list[str], tmp_path: Path) -> None:
    file = tmp_path / "images.tar"
    assert run("images", "export", str(file), names[0]).status == 0
    content = bytearray(file.read_bytes())
    content[-2000] ^= 1
    file.write_bytes(content)
    with closing(docker.APIClient(version="auto")) as client:
        client.remove_image(names[0])
        refused = run("images", "import", str(file))
        assert (refused.status, "damaged" in refused.line) == (1, True)
        assert not client.images(names[0])
        content[-2000] ^= 1
        file.write_bytes(content)
        assert run("images", "import", str(file)).status == 0
    refused = run("images", "export", str(tmp_path / "none.tar"), "missing-here")
    assert (refused.status, "has no image missing-here:latest" in refused.line) == (1, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["images.tar"]
