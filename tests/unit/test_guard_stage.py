"""The stage in which the guard is compiled: where its program comes from, and its end."""

import hashlib
from typing import Any

import pytest
from docker.errors import APIError, ImageNotFound
from requests import Response

from images import guard_stage
from images.guard_stage import LABEL_BUILD, LABEL_GUARD
from images.recipes import ROOT, context_files

DIGEST = "d" * 64


class Engine:
    """Has one image with those labels, and a stage of each build; a stage may be in use."""

    def __init__(self, labels: dict[str, str] | None, *, in_use: bool = False) -> None:
        self._labels = labels
        self._in_use = in_use
        self.looked_for: list[dict[str, str]] = []
        self.removed: list[str] = []

    def inspect_image(self, _name: str) -> dict[str, Any]:
        if self._labels is None:
            raise ImageNotFound("none")
        return {"Id": "sha256:1", "Config": {"Labels": self._labels}}

    def images(self, *, filters: dict[str, str]) -> list[dict[str, str]]:
        self.looked_for.append(filters)
        return [{"Id": "stage"}]

    def remove_image(self, name: str) -> None:
        self.removed.append(name)
        if self._in_use:
            response = Response()
            response.status_code = 409
            raise APIError("in use", response=response)


def arguments(engine: Any, *, anew: bool = False) -> dict[str, str]:
    with guard_stage.arguments(engine, "usual", DIGEST, "base", anew=anew) as found:
        return found


@pytest.mark.parametrize(
    ("labels", "anew", "image"),
    [
        ({LABEL_GUARD: DIGEST}, False, "usual"),
        ({LABEL_GUARD: DIGEST}, True, "base"),
        ({LABEL_GUARD: "e" * 64}, False, "base"),
        ({}, False, "base"),
        (None, False, "base"),
    ],
)
def test_only_a_program_of_these_sources_is_taken_over(
    labels: dict[str, str] | None, anew: bool, image: str
) -> None:
    assert arguments(Engine(labels), anew=anew)["GUARD_IMAGE"] == image


@pytest.mark.parametrize("in_use", [False, True])
def test_the_stage_of_this_build_is_removed_and_no_other(in_use: bool) -> None:
    engine = Engine({}, in_use=in_use)
    builds = [arguments(engine)["BUILD"] for _ in range(2)]
    assert builds[0] != builds[1]
    assert engine.looked_for == [{"label": f"{LABEL_BUILD}={build}"} for build in builds]
    assert engine.removed == ["stage", "stage"]


def test_it_is_removed_after_a_build_that_failed() -> None:
    engine: Any = Engine({})
    with (
        pytest.raises(RuntimeError),
        guard_stage.arguments(engine, "usual", DIGEST, "base", anew=False),
    ):
        raise RuntimeError
    assert engine.removed == ["stage"]


def test_the_digest_is_that_of_the_shell_s_order() -> None:
    files = context_files()
    sources = sorted((ROOT / guard_stage.SOURCES).iterdir())
    whole = b"".join(path.read_bytes() for path in sources)
    assert guard_stage.digest(files) == hashlib.sha256(whole).hexdigest()
    changed = {**files, f"{guard_stage.SOURCES}/plan.c": b""}
    assert guard_stage.digest(changed) != guard_stage.digest(files)
