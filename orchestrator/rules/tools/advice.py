"""Advice about manifests that are valid but will probably not work as intended."""

import tomllib
from collections.abc import Iterable, Iterator

from orchestrator.rules.tools.arguments import Argument
from orchestrator.rules.tools.manifest import Manifest
from orchestrator.rules.tools.oneshot import Oneshot

# Prefixes and suffixes that make a pattern match anywhere in a text that is searched.
_OPEN = (".*", ".+", "(.*", "(.+", "(?:.*", "(?:.+")
_OPEN_END = (".*", ".+", ".*)", ".+)")


def advice(manifest: Manifest | Oneshot) -> Iterator[str]:
    """One sentence for each suspicious field, beginning with its name."""
    if isinstance(manifest, Oneshot):
        yield from _of_oneshot(manifest)
    else:
        yield from _of_session(manifest)


def _of_oneshot(tool: Oneshot) -> Iterator[str]:
    tables = tomllib.loads(tool.source)
    for name in ("parser", "schema"):
        if name in tables["output"]:
            yield f"output.{name}: is not applied: the command's output is returned unchanged"
    yield from _of_arguments("args", tool.args)


def _of_session(manifest: Manifest) -> Iterator[str]:
    ready = manifest.ready_pattern.text
    yield from _whole("session.ready_pattern", ready, "the last line, from its beginning")
    for pattern, _ in manifest.states:
        field = f'session.states."{pattern.text}"'
        yield from _whole(field, pattern.text, "the prompt, from its beginning")
    for name, command in manifest.commands.items():
        field = f"session.commands.{name}"
        yield from _whole(f"{field}.pattern", command.pattern.text, "the whole line that is sent")
        yield from _of_arguments(f"{field}.args", command.args)
    if not manifest.commands:
        yield "session.commands: is empty, so every line is refused"


def _of_arguments(field: str, arguments: Iterable[Argument]) -> Iterator[str]:
    for argument in arguments:
        if argument.pattern is not None:
            name = f"{field}.{argument.name}.pattern"
            yield from _whole(name, argument.pattern.text, "the whole value")


def _whole(field: str, text: str, what: str) -> Iterator[str]:
    """Patterns written for searching, which never match a whole text."""
    if not text.startswith(("^", *_OPEN)):
        yield f"{field}: must match {what}: does it need .* before it, or ^?"
    elif not text.endswith(("$", *_OPEN_END)):
        yield f"{field}: must match {what} to its end: does it need .* after it, or $?"
    yield from _never(field, text)


def _never(field: str, text: str) -> Iterator[str]:
    if r"\n" in text or r"\r" in text or "\n" in text:
        yield f"{field}: is matched with one line, which has no line break"
