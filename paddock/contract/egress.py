"""The way out of one session: its rules, their changes, and what it has used."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from paddock.contract.base import WORDS, Count, Model, Time, example
from paddock.contract.fields import sentence
from paddock.contract.requests import LARGE_BODY, Body
from paddock.contract.system import EgressRule, LevelEgress

# Of one list in a session's own rules.
MOST_RULES = 100

_ALL: dict[str, Any] = {
    "cidr": None,
    "methods": [],
    "paths": [],
    "inspect": False,
    "upgrade": False,
    "programs": [],
}
_RULE = {**_ALL, "host": "pypi.org", "ports": [80, 443]}
_DENIED = {**_ALL, "host": "tracker.example", "ports": []}
_EGRESS: dict[str, Any] = {
    "network": "egress",
    "level": {"allow": [_RULE], "deny": []},
    "only": {"allow": None, "deny": [_DENIED]},
    "also": {"allow": [{**_RULE, "host": "files.example", "ports": [443]}], "deny": []},
    "revision": 2,
    "used": {"allowed": 31, "denied": 2, "sent": 48213, "received": 1902771, "connections": 1},
    "key": {"bytes_today": 7340032, "max_bytes_per_day": 10737418240},
}


_DRAFT: dict[str, Any] = {
    "number": 1,
    "host": "registry.npmjs.org",
    "port": 443,
    "method": "CONNECT",
    "path": None,
    "program": "npm",
    "count": 4,
    "first_seen": "2026-03-04T09:30:12.482113Z",
    "last_seen": "2026-03-04T09:31:02.118205Z",
    "rule": "not-listed",
    "reason": "no rule allows registry.npmjs.org at port 443",
    "proposal": {**_RULE, "host": "registry.npmjs.org"},
}


class EgressNarrowing(Model):
    """Further rules that must allow a request."""

    allow: list[EgressRule] | None = Field(
        description="Null: everything that `deny` does not deny."
    )
    deny: list[EgressRule]


class EgressUsage(Model):
    """What the session has used of its way out since it began."""

    allowed: Count = Field(description="Requests that were allowed.")
    denied: Count = Field(description="Requests that were denied.")
    sent: Count = Field(description="Bytes to the outside.")
    received: Count = Field(description="Bytes from the outside.")
    connections: Count = Field(description="Connections that are open now.")


class KeyEgress(Model):
    """What all sessions of the key have moved to and from the outside today, in UTC."""

    bytes_today: Count
    max_bytes_per_day: Count | None = Field(description="Null: no limit.")


class SessionEgress(Model):
    """What a session may reach, and what it has used.

    A request is allowed if `level` or `also` allows it and `only` does, too, and no `deny` of the
    three denies it.
    """

    model_config = example(_EGRESS)

    network: Annotated[Literal["none", "egress", "open"], WORDS] = Field(
        description="The level's; the rules hold if it is `egress`."
    )
    level: LevelEgress
    only: EgressNarrowing = Field(description="Set by the session's owner, who can only narrow.")
    also: LevelEgress = Field(description="Set by an admin; a change of level drops them.")
    revision: Count = Field(description="Counts the changes of `only` and `also`.")
    used: EgressUsage
    key: KeyEgress


_Part = Annotated[str, Field(max_length=1024)]
_Parts = Annotated[list[_Part], Field(max_length=64)]


class EgressDraft(Model):
    """Denied requests that one rule would allow; method and path are those of the latest."""

    model_config = example(_DRAFT)

    number: int = Field(ge=1)
    host: str
    port: int
    method: str
    path: str | None = Field(description="Without its query; null for a tunnel.")
    program: str = Field(description="The program that sent it, by what the sandbox says.")
    count: int = Field(ge=1)
    first_seen: Time
    last_seen: Time
    rule: str = Field(description="The rule that denied them.")
    reason: str | None
    proposal: EgressRule | None = Field(description="Null: no rule can allow them.")


class EgressDrafts(Model):
    """What was denied since the control plane started, by the rules that would allow it."""

    model_config = example({"items": [_DRAFT], "others": 0, "next": None})

    items: list[EgressDraft]
    others: Count = Field(description="Denied requests beyond the 100 drafts that are kept.")
    next: None


class EgressRuleBody(Body):
    """A rule as in a level's file: either `host` or `cidr`."""

    host: Annotated[str, Field(max_length=255)] | None = None
    cidr: Annotated[str, Field(max_length=64)] | None = None
    ports: Annotated[list[int], Field(max_length=64)] | None = Field(
        default=None, description="By default, a rule allows 80 and 443, and denies every port."
    )
    methods: _Parts | None = None
    paths: _Parts | None = None
    programs: _Parts | None = None
    inspect: bool = False
    upgrade: bool | None = Field(
        default=None, description="In `allow` only: `http://` requests to the host go out in TLS."
    )


_Rules = Annotated[list[EgressRuleBody], Field(max_length=MOST_RULES)]


class NarrowingBody(Body):
    """Fewer requests than the level allows: what `allow` lists, without what `deny` lists."""

    allow: _Rules | None = Field(
        default=None, description="By default, everything that `deny` does not deny."
    )
    deny: _Rules = []


class WideningBody(Body):
    """More requests than the level allows, without what `deny` lists."""

    allow: _Rules = []
    deny: _Rules = []


class EgressBody(Body):
    """The body of `PUT …/egress`; what is missing stays as it is, and null removes all rules."""

    MOST_BYTES = LARGE_BODY

    only: NarrowingBody | None = None
    also: WideningBody | None = Field(default=None, description="For admins only.")
    revision: Annotated[int, Field(ge=0)] | None = Field(
        default=None, description="That of the rules to change: 409 if they have changed since."
    )

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if not self.model_fields_set & {"only", "also"}:
            raise sentence("only or also must be given")
        return self


class EgressRulesBody(Body):
    """Rules to add: those given, and those that drafts propose."""

    MOST_BYTES = LARGE_BODY

    allow: _Rules = []
    deny: _Rules = []
    drafts: Annotated[list[Annotated[int, Field(ge=1)]], Field(max_length=MOST_RULES)] = Field(
        default=[], description="Numbers of drafts."
    )

    @model_validator(mode="after")
    def _adds_something(self) -> Self:
        if not (self.allow or self.deny or self.drafts):
            raise sentence("a rule or a draft must be given")
        return self


def body_rules(body: NarrowingBody | WideningBody | EgressRulesBody | None) -> dict[str, Any]:
    """The rules as a level's file has them; none if there is no body."""
    return {} if body is None else body.model_dump(exclude_none=True, exclude={"drafts"})
