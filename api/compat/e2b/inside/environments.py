"""Variables that hold for one cell: the code that sets them before it, and removes them. Pure."""

import json
import shlex
from collections.abc import Mapping

from orchestrator.ground.errors import ValidationError
from sandbox_agent.decide.variables import allowed_variable

# Where the former values are, in the context's program.
_KEPT = "__paddock_environment"


def setting(language: str, variables: Mapping[str, str]) -> str:
    """The code of a cell that sets the variables.

    Raises: ValidationError for a name that is none, and for a language of which that is not known.
    """
    for name in variables:
        if not allowed_variable(name, None):
            raise ValidationError(f"env_vars: not a name: {name[:64]}", field="env_vars")
    if language == "python":
        given = json.dumps(json.dumps(dict(variables)))
        return (
            f"import os, json\nglobals()['{_KEPT}'] = dict(os.environ)\n"
            f"os.environ.update(json.loads({given}))"
        )
    if language in ("javascript", "typescript"):
        given = json.dumps(dict(variables))
        kept = f"globalThis.{_KEPT} = {{...process.env}}"
        return f"{kept}; Object.assign(process.env, {given}); undefined"
    if language == "bash":
        return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items())
    raise ValidationError(f"env_vars can't be given with {language}", field="env_vars")


def unsetting(language: str) -> str:
    """The code of a cell that takes the variables back."""
    if language == "python":
        kept = f"globals().pop('{_KEPT}')"
        return f"import os\n__paddock = {kept}\nos.environ.clear()\nos.environ.update(__paddock)"
    if language in ("javascript", "typescript"):
        return (
            f"for (const name of Object.keys(process.env)) "
            f"if (!(name in globalThis.{_KEPT})) delete process.env[name]; "
            f"Object.assign(process.env, globalThis.{_KEPT}); undefined"
        )
    return ":"
