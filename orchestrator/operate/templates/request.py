"""What is asked of a new session by a template, for its sessions and for its preparation. Pure."""

from dataclasses import replace

from orchestrator.rules.policy.levels import Level
from orchestrator.rules.templates.template import Template
from orchestrator.state.requests import NewSession
from orchestrator.state.terms import Terms
from sandbox_agent.decide.variables import allowed_variable


def with_template(template: Template, asked: NewSession, level: Level) -> NewSession:
    """The request with the template's members where it has none, for a session at that level.

    Variables, limits and budget are merged by name. What the level does not permit of the
    template's is left out, and its limits are the level's at most.
    """
    terms = asked.terms
    env = {
        name: text
        for name, text in template.env.items()
        if name not in asked.secrets and allowed_variable(name, level.environment)
    }
    limits = template_limits(template, level)
    egress = template.egress if level.network == "egress" else None
    merged = replace(
        terms,
        image=terms.image or template.image or "",
        env={**env, **terms.env},
        limits={**limits, **terms.limits},
        idle_timeout=terms.idle_timeout or template.idle_timeout or 0,
        wall_timeout=terms.wall_timeout or template.wall_timeout,
        tools=template.tools if terms.tools is None else terms.tools,
    )
    return replace(
        asked,
        permission_level=level.name,
        terms=merged,
        budget={**template.budget, **asked.budget},
        egress=egress if asked.egress is None else asked.egress,
        policy=template.policy if asked.policy is None else asked.policy,
    )


def template_limits(template: Template, level: Level) -> dict[str, int | float]:
    """The template's own limits, as far as the level permits."""
    return {name: min(most, getattr(level.limits, name)) for name, most in template.limits.items()}


def preparing(template: Template, level: str, image: str, seconds: int) -> NewSession:
    """The session in which the template is prepared, which lives for that long at most.

    Budget, tools and policy are for the template's sessions.
    """
    terms = Terms(
        image=image,
        labels={"template": template.name},
        env=dict(template.env),
        limits=dict(template.limits),
        wall_timeout=seconds,
    )
    return NewSession(permission_level=level, terms=terms, egress=template.egress)
