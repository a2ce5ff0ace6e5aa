"""Whether sandboxes can wait for sessions of templates as their files say. Pure."""

from collections.abc import Mapping

from orchestrator.rules.policy.levels import DEFAULT_LEVEL, Level
from orchestrator.rules.templates.template import Template
from orchestrator.settings.settings import Settings
from orchestrator.state.shapes import can_wait


def warm_problems(
    settings: Settings, templates: Mapping[str, Template], levels: Mapping[str, Level]
) -> list[str]:
    """Why fewer sandboxes will wait for sessions of templates than `warm` in their files says."""
    warm = [template for template in templates.values() if template.warm]
    problems = []
    for template in warm:
        level = levels.get(template.permission_level or DEFAULT_LEVEL)
        if level is not None and not can_wait(level):
            problems.append(
                f"template {template.name}: sandboxes of level {level.name} can't be started ahead"
            )
    asked = sum(template.warm for template in warm)
    room = settings.warm_sandboxes - sum(settings.warm_least.values())
    if asked > room:
        problems.append(
            f"templates have {asked} sandboxes wait, and PADDOCK_WARM_SANDBOXES has room for {room}"
        )
    if warm and settings.warm_sandboxes and settings.runtime is not None:
        problems.append("with PADDOCK_RUNTIME, no sandboxes wait for sessions of templates")
    return problems
