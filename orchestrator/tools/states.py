"""The state of a tool's session, by its prompt and by the commands that went before."""

from typing import NamedTuple

from orchestrator.tools.manifest import Manifest

READY = "ready"
ERROR = "error"


class PromptState(NamedTuple):
    """A prompt, and the state that the session was in at it."""

    prompt: str
    state: str


def infer_state(manifest: Manifest, prompt: str) -> str:
    """The state that a prompt shows.

    It is that of the manifest's first pattern that matches the whole prompt; where none does,
    `error` for a prompt with that word, else `ready`. A state that the output schema's enum
    lacks is `error`.
    """
    for pattern, state in manifest.states:
        if pattern.matches(prompt):
            return _declared(manifest, state)
    return _declared(manifest, ERROR if ERROR in prompt.lower() else READY)


def next_state(
    manifest: Manifest, before: PromptState | None, prompt: str, command: str | None
) -> str:
    """The state at a prompt to which the command of that name led; None: at the first prompt.

    A prompt that has changed shows the state. While it stays the same, the state is the one
    that the last state-setting command has set, or that was shown before.
    """
    if before is None or prompt != before.prompt:
        return infer_state(manifest, prompt)
    known = manifest.commands.get(command or "")
    if known is not None and known.state is not None:
        return _declared(manifest, known.state)
    return before.state


def _declared(manifest: Manifest, state: str) -> str:
    known = manifest.declared_states
    return state if known is None or state in known else ERROR
