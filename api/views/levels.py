"""Permission levels as the API shows them."""

from collections.abc import Mapping

from api.shape.objects import members
from api.views.egress import rules
from orchestrator.rules.policy import levels
from paddock.contract.system import (
    Level,
    LevelConfinement,
    LevelLimits,
    LevelRates,
    LevelRequirements,
)


def level(
    shown: levels.Level,
    *,
    allowed: bool,
    rule: str | None,
    without_root: Mapping[str, str | None],
) -> Level:
    """The level; `commands` and `environment` are null for "any".

    `allowed` and `rule` are about the caller. `without_root` is `Runtimes.without_root`.
    """
    refused = without_root.get(shown.name)
    return Level.model_validate(
        members(
            Level,
            shown,
            allowed=allowed,
            rule=rule,
            root_in_force=refused is None if shown.name in without_root else None,
            root_refused=refused,
            commands=None if shown.commands is None else sorted(shown.commands),
            environment=None if shown.environment is None else list(shown.environment),
            mounts=list(shown.mounts),
            limits=members(LevelLimits, shown.limits),
            requires=members(
                LevelRequirements, shown.requires, without=list(shown.requires.without)
            ),
            confinement=members(LevelConfinement, shown.confinement),
            rates=members(LevelRates, shown.rates),
            egress=rules(shown.egress),
            variables=dict(shown.variables),
            images=None if shown.images is None else list(shown.images),
        )
    )
