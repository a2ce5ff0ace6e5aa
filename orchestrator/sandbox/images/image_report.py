"""What a check of an image found, for whoever adds it. Pure."""

from collections.abc import Iterable, Iterator

from orchestrator.rules.policy.levels import Level
from orchestrator.sandbox.images.image_facts import ImageFacts


def level_reports(facts: ImageFacts, levels: Iterable[Level]) -> Iterator[tuple[str, str]]:
    """For each level, whether the image works there, and what is missing."""
    for level in levels:
        problem, missing = facts.problem(level), facts.missing(level)
        if problem is not None:
            yield level.name, f"no: {problem}"
        elif missing:
            yield level.name, f"works, without {', '.join(map(facts.explained, missing))}"
        else:
            yield level.name, "works"


def notes(facts: ImageFacts) -> Iterator[str]:
    """What else whoever uses the image should know."""
    if "sh" not in facts.programs:
        yield "it has no sh: commands are programs with arguments, and terminals run those"
    elif "bash" not in facts.programs:
        yield "it has no bash, which lines of a shell need: run `sh -c` instead"
    if "python3" not in facts.programs:
        yield "it has no python3, which code cells need"
    if facts.volumes:
        yield f"its volumes are empty and read-only: {', '.join(facts.volumes)}"
    if facts.setuid_count:
        yield f"{facts.setuid_count} files have setuid or setgid bits, which have no effect"
    if not facts.whole:
        yield f"it has more files than were looked at: {facts.entries}"
