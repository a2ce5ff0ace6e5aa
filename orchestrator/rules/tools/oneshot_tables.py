"""The tables of a oneshot manifest: a command with typed arguments that runs once."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints

from orchestrator.rules.tools.tables import ArgumentTable, Name, Table, ToolTable

_Template = Annotated[str, StringConstraints(min_length=1, max_length=4096)]
_Flags = Annotated[str, StringConstraints(max_length=4096)]
_Key = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
Default = str | int | float | bool


class OneshotArgumentTable(ArgumentTable):
    """An argument of the command."""

    position: int | None = Field(default=None, ge=1, description="For people.")
    default: Default | None = Field(default=None, description="The value if none is given.")
    sanitize: list[Literal["injection"]] = Field(
        default=["injection"], description="It is always applied."
    )
    block_internal: bool = Field(
        default=False, description="Only the scope file's targets are in scope."
    )


class ConditionalTable(Table):
    """Words that are added on a condition."""

    when: Annotated[str, StringConstraints(min_length=1, max_length=1024)] = Field(
        description="`<argument> == <value>`, or with `!=`; more of them with `and`, `or`. A value "
        "is `'<text>'`, a number, `true` or `false`."
    )
    template: _Template


class TemplateTable(Table):
    """The command's words. No shell reads them: `{name}` stands for an argument inside a word."""

    template: _Template | None = None
    exec: list[_Template] | None = Field(default=None, min_length=1, max_length=256)
    defaults: dict[_Key, Default] = {}
    mappings: dict[_Key, dict[Annotated[str, Field(max_length=256)], _Flags]] = Field(
        default={}, description="The words of `{_<argument>_flags}`, by argument and value."
    )
    conditionals: dict[_Key, ConditionalTable] = Field(
        default={}, description="The words of `{_<name>}`."
    )


class OneshotOutputTable(Table):
    """The command's output. It is returned unchanged and not parsed."""

    model_config = ConfigDict(extra="forbid", strict=True, protected_namespaces=())

    format: Literal["text", "json", "xml", "csv", "jsonl"] = "text"
    parser: Annotated[str, Field(max_length=128)] | None = None
    envelope: bool = True
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")


class OneshotTable(Table):
    """A oneshot manifest, `*.clad.toml`."""

    tool: ToolTable
    args: dict[Name, OneshotArgumentTable] = {}
    command: TemplateTable
    output: OneshotOutputTable
