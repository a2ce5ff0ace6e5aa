"""Permission levels as the API shows them."""

from api.views.members import members
from orchestrator.egress.rules import Rule
from orchestrator.policy import levels
from paddock.contract.system import (
    EgressRule,
    Level,
    LevelConfinement,
    LevelEgress,
    LevelLimits,
    LevelRates,
    LevelRequirements,
)


def level(shown: levels.Level) -> Level:
    """The level; `commands` and `environment` are null for "any"."""
    return Level.model_validate(
        members(
            Level,
            shown,
            commands=None if shown.commands is None else sorted(shown.commands),
            environment=None if shown.environment is None else list(shown.environment),
            mounts=list(shown.mounts),
            limits=members(LevelLimits, shown.limits),
            requires=members(LevelRequirements, shown.requires),
            confinement=members(LevelConfinement, shown.confinement),
            rates=members(LevelRates, shown.rates),
            egress=LevelEgress(
                allow=[_rule(rule) for rule in shown.egress.allow],
                deny=[_rule(rule) for rule in shown.egress.deny],
            ),
        )
    )


def _rule(rule: Rule) -> EgressRule:
    return EgressRule.model_validate(
        members(
            EgressRule,
            rule,
            ports=list(rule.ports),
            methods=list(rule.methods),
            paths=[str(glob) for glob in rule.paths],
        )
    )
