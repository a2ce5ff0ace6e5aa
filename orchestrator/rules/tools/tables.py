"""The tables of a manifest file: its fields and their permitted values."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

NAME = r"^[A-Za-z0-9_-]{1,64}$"
Dialect = Literal["postgresql", "mysql", "sqlite"]
Action = Literal[
    "select",
    "insert",
    "update",
    "delete",
    "truncate",
    "create",
    "alter",
    "drop",
    "transaction",
    "show",
    "use",
    "unparsed",
]
RiskTier = Literal["info", "low", "medium", "high", "critical"]
Name = Annotated[str, StringConstraints(pattern=NAME)]
_Text = Annotated[str, Field(min_length=1, max_length=1024)]
_Regex = Annotated[str, Field(min_length=1, max_length=2000)]
# `Namespace::Type`, as Cedar spells entity types.
_CedarName = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(::[A-Za-z_][A-Za-z0-9_]*)*$")
]
_Principal = Annotated[
    str,
    StringConstraints(
        pattern=r'^[A-Za-z_][A-Za-z0-9_]*(::[A-Za-z_][A-Za-z0-9_]*)*::"[^"\\\x00-\x1f]{1,128}"$'
    ),
]
_Function = Annotated[str, StringConstraints(pattern=r"^[a-z_][a-z0-9_]*(\.[a-z_][a-z0-9_]*)?$")]
_Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,255}$")]
_Path = Annotated[str, StringConstraints(pattern=r"^(/[^/\x00\n]+)+$")]
_OutputDir = Annotated[
    str,
    StringConstraints(
        pattern=""
        "^\\{evidence_dir\\}/[A-Za-z0-9_-]{0,64}\\{(session_id|scan_id)\\}[A-Za-z0-9_-]{0,64}/?$"
    ),
]
_Seconds = Annotated[int, Field(ge=1, le=86_400)]


class Table(BaseModel):
    """A table: strict TOML types (a boolean is not an integer), no other fields."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)


class CedarTable(Table):
    """The tool's names in Cedar policies."""

    resource: _CedarName = Field(
        description="The resource's type; its namespace applies to all names."
    )
    action: _Text = Field(description='The action\'s id: `<namespace>::Action::"<action>"`.')
    principal: _Principal | None = Field(
        default=None,
        description='The principal, as in `PenTest::Phase::"exploit"`; unset: '
        '`<namespace>::Agent::"<role of the session>"`.',
    )


class EvidenceTable(Table):
    """The evidence of a terminal, kept below `evidence` of the state directory."""

    output_dir: _OutputDir | None = Field(
        default=None,
        description="An additional name of a terminal's evidence: `{evidence_dir}/` and one name "
        "with `{session_id}` in it, which is the terminal's id.",
    )
    capture: bool = Field(
        default=True, description="Keep the tool's output bytes, not only the transcript."
    )
    hash: Literal["sha256"] = "sha256"


class ToolTable(Table):
    """The tool."""

    name: Name = Field(description="Its tools are called `<name>.<command>`.")
    binary: _Text | None = Field(default=None, description="The name of the program that starts.")
    mode: Literal["oneshot", "session", "browser"] | None = Field(
        default=None,
        description="`browser` can't be run. Unset: `session` if there is a table "
        "`[session]`, else `oneshot`.",
    )
    description: Annotated[str, Field(max_length=1024)] = ""
    risk_tier: RiskTier = Field(
        default="low", description="For information: each command is checked against its own."
    )
    version: _Text | None = None
    timeout_seconds: _Seconds = Field(default=60, description="Time-out of a oneshot command.")
    human_approval: bool = Field(default=False, description="Every command needs an approval.")
    dispatch: Literal["exec", "callback"] = Field(
        default="exec", description="Only `exec` can be run."
    )
    cedar: CedarTable | None = None
    evidence: EvidenceTable = EvidenceTable()


class InteractionTable(Table):
    """How lines go in and output comes out."""

    input_sanitize: list[Literal["injection"]] = Field(
        default=[], description="`injection` refuses ; | & $ ` { } [ ] < > and !"
    )
    output_max_bytes: int = Field(default=1_048_576, ge=1, le=64 * 1024 * 1024)
    output_wait_ms: int = Field(default=2000, ge=1, le=3_600_000)
    line_terminator: (
        Annotated[str, StringConstraints(pattern=r"^[ -~]{0,7}(\n|\r|\r\n)$")] | None
    ) = Field(
        default=None,
        description='The end of each line. Unset: ";\\n" for psql, mysql, mariadb, else "\\n".',
    )
    parser: Literal["sql"] | None = Field(
        default=None,
        description="`sql`: each line must be one statement that the parser understands and that "
        "does what its command declares.",
    )
    dialect: Dialect | None = Field(default=None, description="For `parser`.")


ArgumentType = Literal[
    "string",
    "integer",
    "number",
    "port",
    "boolean",
    "enum",
    "scope_target",
    "url",
    "path",
    "ip_address",
    "cidr",
    "msf_options",
    "credential_file",
    "duration",
    "regex_match",
]


class ArgumentTable(Table):
    """The values that the command pattern's group of this name may match."""

    type: ArgumentType
    description: Annotated[str, Field(max_length=1024)] = ""
    required: bool = Field(default=True, description="The group must have matched a value.")
    min: float | None = Field(default=None, allow_inf_nan=False)
    max: float | None = Field(default=None, allow_inf_nan=False)
    allowed: list[_Text] = Field(default=[], description="For `enum`.")
    schemes: list[_Text] = Field(default=[], description="For `url`.")
    scope_check: bool = Field(default=False, description="For `url`: its host must be in scope.")
    pattern: _Regex | None = Field(default=None, description="For `string` and `regex_match`.")
    bind: bool = Field(
        default=False,
        description="For `path`: a person approves the content of that file in the workspace; if "
        "it changes, the approval is void.",
    )


class TypeTable(Table):
    """A custom type: its base, and the bounds that it adds."""

    base: Annotated[str, Field(max_length=64)] = Field(description="An existing type.")
    min: float | None = Field(default=None, allow_inf_nan=False)
    max: float | None = Field(default=None, allow_inf_nan=False)
    allowed: list[_Text] = []
    pattern: _Regex | None = None


class CommandTable(Table):
    """A permitted operation."""

    pattern: _Regex = Field(description="RE2; it matches the whole line.")
    description: Annotated[str, Field(max_length=1024)] = ""
    risk_tier: RiskTier = "low"
    human_approval: bool = Field(
        default=False, description="A person must approve each line; always true for `critical`."
    )
    extract_target: bool = Field(
        default=False,
        description="The group `target`, else the first group, else every word after the "
        "pattern's literal beginning must be in scope.",
    )
    state: Name | None = Field(
        default=None,
        description="The session's state after the command, while the prompt stays the same.",
    )
    args: dict[Name, ArgumentTable] = {}
    statements: list[Action] = Field(
        default=[],
        description="With `parser`: what its statements may do. `unparsed`, alone: only the "
        "pattern defines it, as for the client's own commands.",
    )
    functions: list[_Function] = Field(
        default=[],
        description="With `parser`: functions that it may call in addition to those that are "
        "known to only compute, such as `nextval` or `reports.total`.",
    )


class ConfinementTable(Table):
    """Resources that the program needs beyond those of the level's commands."""

    read: list[_Path] = Field(default=[], description="Absolute paths that it may read.")
    execute: list[_Path] = Field(default=[], description="Absolute paths that it may execute.")
    writable_code: bool = Field(
        default=False,
        description="Memory may be written and executed, as just-in-time compilers need it.",
    )


class SessionTable(Table):
    """The life of a terminal."""

    startup_command: Annotated[str, Field(min_length=1, max_length=4096)]
    ready_pattern: _Regex = Field(description="RE2; the tool waits for input at this prompt.")
    startup_timeout_seconds: _Seconds = 30
    idle_timeout_seconds: _Seconds = 300
    session_timeout_seconds: _Seconds = 1800
    max_interactions: int = Field(default=100, ge=1, le=1_000_000)
    allow_ptrace: bool = Field(
        default=False, description="It can run only at a level whose file allows ptrace."
    )
    mounts: list[Name] = Field(
        default=[], max_length=16, description="Names of the operator's list of mounts."
    )
    env: dict[_Variable, Annotated[str, Field(max_length=4096)]] = {}
    confinement: ConfinementTable = ConfinementTable()
    interaction: InteractionTable = InteractionTable()
    states: dict[_Regex, Name] = Field(
        default={}, description="Prompts and the states that they show; the first match counts."
    )
    commands: dict[Name, CommandTable] = {}


class OutputTable(Table):
    """The result of an interaction."""

    model_config = ConfigDict(extra="forbid", strict=True, protected_namespaces=())

    format: Literal["text"] = "text"
    parser: Literal["builtin:text"] = "builtin:text"
    envelope: Literal[True] = True
    schema_: dict[str, Any] | None = Field(
        default=None,
        alias="schema",
        description="JSON Schema of `{prompt, output, session_state, interaction_count}`.",
    )


class ManifestTable(Table):
    """A tool session manifest, `*.clad.toml`."""

    tool: ToolTable
    session: SessionTable
    output: OutputTable
