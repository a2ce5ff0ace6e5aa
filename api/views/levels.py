"""Permission levels as the API shows them."""

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


def level(shown: levels.Level, *, allowed: bool, rule: str | None) -> Level:
    """The level; `commands` and `environment` are null for "any".

    `allowed` and `rule` are about the caller.
    """
    return Level.model_validate(
        members(
            Level,
            shown,
            allowed=allowed,
            rule=rule,
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
