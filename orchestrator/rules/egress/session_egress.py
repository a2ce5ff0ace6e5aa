"""Rules of the way out in requests about one session, with the checks of a level file's."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError as SchemaError

from orchestrator.ground.errors import ValidationError
from orchestrator.rules.egress.egress_table import EgressTable
from orchestrator.rules.egress.rules import Rules
from orchestrator.rules.egress.session_rules import Narrowing, OwnRules
from orchestrator.rules.policy.levels import Level
from orchestrator.settings.schema_errors import reason


def rules_of(value: Mapping[str, Any], field: str) -> Rules:
    """The rules in `allow` and `deny` of a request's member; an empty `field` is the whole request.

    Raises: ValidationError naming the place.
    """
    try:
        table = EgressTable.model_validate(dict(value))
    except SchemaError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        raise _refused(field, first["loc"], reason(first["type"], first["msg"])) from None
    for place, message in table.contradictions():
        raise _refused(field, place, message)
    return table.rules()


def narrowing_of(value: Mapping[str, Any], field: str) -> Narrowing:
    """The narrowing in `allow` and `deny`, of which `allow` may be missing.

    Raises: ValidationError naming the place.
    """
    if value.get("allow") is None:
        return Narrowing(None, rules_of({"deny": value.get("deny", [])}, field).deny)
    rules = rules_of(value, field)
    return Narrowing(rules.allow, rules.deny)


def check_own_rules(level: Level, own: OwnRules, *, only: str = "only") -> None:
    """Raises: ValidationError, naming the place, if the level's sandboxes can't have these rules.

    `only` is the member of the request with the rules that narrow.
    """
    check_rules(level, Rules(own.only.allow or (), own.only.deny), only)
    check_rules(level, own.also, "also")


def check_rules(level: Level, rules: Rules, field: str) -> None:
    """The same for the rules of one member; an empty `field` is the whole request."""
    if level.egress.inspect:
        return
    for kind, found in (("allow", rules.allow), ("deny", rules.deny)):
        for index, rule in enumerate(found):
            if rule.inspect:
                why = "otherwise its sandboxes do not trust the proxy's certificates"
                raise _refused(
                    field,
                    (kind, index, "inspect"),
                    f"needs a level with a rule that inspects: {why}, and {level.name} has none",
                )


def _refused(field: str, place: tuple[int | str, ...], message: str) -> ValidationError:
    name = ".".join(str(part) for part in (*([field] if field else []), *place))
    return ValidationError(f"{name} {message}", field=name)
