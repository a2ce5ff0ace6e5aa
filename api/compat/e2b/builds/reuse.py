"""Builds that begin with what an earlier one has done, as far as both are made alike.

Nothing is assumed of a step but that it does the same again: a client that knows better forces it.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from api.compat.call import Call
from api.compat.e2b.builds.bodies import BuildBody, StepBody
from api.compat.e2b.builds.built import Built, Start
from api.compat.e2b.builds.steps import Plan
from api.operations.images import list_images
from paddock.audit.chain import canonical


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a build is made: the members of its session, its steps, and what it starts.

    `states` has a digest of all that has gone in before the first step and after each one; None if
    that is not known. The first `same` steps may be those of an earlier build.
    """

    wanted: Mapping[str, Any]
    plan: Plan
    ends: Start
    states: tuple[str, ...] | None
    same: int

    @property
    def digest(self) -> str | None:
        """Of all that goes into the build; None if it is not known."""
        return None if self.states is None else _completed(self.states[-1], self.ends)


async def states(
    call: Call, wanted: Mapping[str, Any], before: Start, steps: Iterable[StepBody]
) -> tuple[str, ...] | None:
    """The digests of a recipe. What an operator's template has in it is not known."""
    if "template" in wanted:
        return None
    level = call.plane.levels[wanted["permission_level"]]
    images = []
    for image in (await call.done(list_images)).items:
        usual = image.default or level.name in image.default_levels
        if image.name == wanted.get("image") or ("image" not in wanted and usual):
            images.append(image.id)
    begun = {
        "level": [level.name, level.sha256],
        "images": images,
        "snapshot": wanted.get("from_snapshot"),
        "variables": dict(before.variables),
        "directory": before.directory,
    }
    return digests(begun, steps)


def digests(begun: Mapping[str, Any], steps: Iterable[StepBody]) -> tuple[str, ...]:
    """A digest of the beginning, and one of it and all steps up to each."""
    found = [_digest(begun)]
    for step in steps:
        found.append(_digest([found[-1], step.type, step.args or [], step.files_hash]))
    return tuple(found)


def shareable(body: BuildBody) -> int:
    """How many steps come before the first that must be carried out anew."""
    if body.force:
        return 0
    steps = body.steps or []
    return next((number for number, each in enumerate(steps) if each.force), len(steps))


def beginning(builds: Sequence[Built], recipe: Recipe) -> tuple[Built, int] | None:
    """The build that has done the most steps of the recipe and nothing else, and their number.

    One that has started the same as the recipe does has done so, too, if it has all steps.
    """
    if recipe.states is None:
        return None
    by_digest = {each.digest: each for each in reversed(builds)}
    for number in range(recipe.same, 0, -1):
        state = recipe.states[number]
        whole = number == len(recipe.states) - 1
        for digest in (state, _completed(state, recipe.ends)) if whole else (state,):
            if digest in by_digest:
                return by_digest[digest], number
    return None


def _completed(state: str, ends: Start) -> str:
    if ends.command is None and ends.ready is None:
        return state
    return _digest([state, "start", ends.command, ends.ready])


def _digest(value: Any) -> str:
    return hashlib.sha256(canonical(value).encode("utf-8", "surrogatepass")).hexdigest()
