"""The state of a tool's session, inferred from its prompt and the previous commands."""

from typing import NamedTuple

from orchestrator.rules.tools.manifest import Manifest

READY = "ready"
ERROR = "error"


class PromptState(NamedTuple):
    """A prompt, and the session's state at it."""

    prompt: str
    state: str


def infer_state(manifest: Manifest, prompt: str) -> str:
    """The state that a prompt shows.

    It is the state of the manifest's first pattern that matches the whole prompt. If none does, it
    is `error` for a prompt that contains this word, else `ready`. A state that is missing in the
    output schema's enum becomes `error`.
    """
    for pattern, state in manifest.states:
        if pattern.matches(prompt):
            return _declared(manifest, state)
    return _declared(manifest, ERROR if ERROR in prompt.lower() else READY)


def next_state(
    manifest: Manifest, before: PromptState | None, prompt: str, command: str | None
) -> str:
    """The state at the prompt after the command of that name; None at the first prompt.

    A changed prompt determines the state. While the prompt is unchanged, the state is the one set
    by the last command that sets a state, or else the state shown before.
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
