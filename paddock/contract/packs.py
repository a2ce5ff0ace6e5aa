"""Context packs: the files that a CONSUME session may read, and what it may do with them."""

import hmac
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, WithJsonSchema, model_validator

from paddock.contract import pack_form
from paddock.contract.base import WORDS, Count, Model, Time, example
from paddock.contract.fields import Environment, Secrets, sentence
from paddock.contract.pack_form import ToolClass
from paddock.contract.requests import LARGEST_BODY, Body, check_names

EXAMPLE: dict[str, Any] = {
    "manifest_id": "fix-login",
    "entries": [
        {
            "path": "/workspace/src/login.py",
            "content_hash": "sha256:"
            "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        }
    ],
    "tool_allowlist": ["Read", "Execute"],
    "shell_allowlist": ["grep *"],
}
# Of a path, in an error.
_MOST_SHOWN = 100
_PATH_SCHEMA = {"type": "string", "minLength": 1, "maxLength": pack_form.MAX_PATH_BYTES}


def _normalised(path: str) -> str:
    return pack_form.normalised(path)


def _file(path: str) -> str:
    if path == pack_form.WORKSPACE:
        raise ValueError("must name a file in the workspace")
    return path


def _tool_class(name: str) -> str:
    return pack_form.tool_class(name).value


def _printable(pattern: str) -> str:
    if not pattern.isprintable():
        raise ValueError("must not contain control characters")
    return pattern


def _written(path: str) -> str:
    if not path.startswith("/") or ".." in path.split("/"):
        raise ValueError(f"must be an absolute path without `..`, not {path[:_MOST_SHOWN]!r}")
    return pack_form.normalised(path)


PackPath = Annotated[str, AfterValidator(_normalised), WithJsonSchema(_PATH_SCHEMA)]
_WrittenPath = Annotated[str, AfterValidator(_written), WithJsonSchema(_PATH_SCHEMA)]
_Id = Annotated[str, Field(min_length=1, max_length=pack_form.MAX_ID)]
_Hash = Annotated[str, Field(pattern=pack_form.HASH_PATTERN, max_length=71)]
_ToolClass = Annotated[
    str,
    AfterValidator(_tool_class),
    WithJsonSchema(
        {"type": "string", "maxLength": 64, "examples": [str(name) for name in ToolClass]}
    ),
]
_Command = Annotated[
    str, Field(min_length=1, max_length=pack_form.MAX_COMMAND), AfterValidator(_printable)
]


class PackEntry(Body):
    """A file that may be read."""

    path: Annotated[PackPath, AfterValidator(_file)] = Field(
        description="Relative to the workspace, or under /workspace."
    )
    content_hash: _Hash | None = Field(
        default=None, description="The only content that may be read; null: any, with `Read` only."
    )
    access_level: Literal["Read", "ReadWithZoom"] = Field(
        default="Read", description="`ReadWithZoom`: a reader must state the hash, too."
    )
    stable_id: _Id | None = None

    @model_validator(mode="after")
    def _hash_for_zoom(self) -> Self:
        if self.access_level == "ReadWithZoom" and self.content_hash is None:
            raise ValueError("must have a content_hash for ReadWithZoom")
        return self


class ContextPack(Body):
    """A read manifest. Everything that it does not list is denied.

    Lists come in any order; here they are sorted, and paths are normalised.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})

    manifest_id: _Id | None = Field(default=None, description="Default: made from the content.")
    profile_id: _Id | None = None
    manifest_hash: _Hash | None = Field(
        default=None, description="If it is given, the pack must have exactly this hash."
    )
    mode: Literal["hard_fail", "soft_fail", "warn"] = Field(
        default="hard_fail",
        description="What a read outside the pack does: with `hard_fail` it is denied and ends the "
        "session, with `soft_fail` it is denied, with `warn` it is allowed and recorded. A wrong "
        "hash is always denied.",
    )
    entries: Annotated[list[PackEntry], Field(max_length=pack_form.MOST_ENTRIES)] = Field(
        default_factory=list
    )
    tool_allowlist: Annotated[list[_ToolClass], Field(max_length=pack_form.MOST_TOOLS)] = Field(
        default_factory=list,
        description="What the session may do at all, reading included: "
        + ", ".join(f"`{name}`" for name in ToolClass)
        + ".",
    )
    write_allowlist: Annotated[list[_WrittenPath], Field(max_length=pack_form.MOST_WRITES)] = Field(
        default_factory=list,
        description="Files, and directories with all that is in them, that may be written: "
        "absolute paths under /workspace, without `..`.",
    )
    shell_allowlist: Annotated[list[_Command], Field(max_length=pack_form.MOST_COMMANDS)] = Field(
        default_factory=list,
        description="Commands that may run; `*` stands for any text without shell operators.",
    )

    @model_validator(mode="after")
    def _canonical(self) -> Self:
        self._check_entries()
        self.entries = sorted(self.entries, key=lambda entry: entry.path)
        self.tool_allowlist = sorted(set(self.tool_allowlist))
        self.write_allowlist = sorted(set(self.write_allowlist))
        self.shell_allowlist = sorted(set(self.shell_allowlist))
        if self.manifest_id is None:
            self.manifest_id = "pack-" + self._hash().removeprefix("sha256:")[:16]
        found = self._hash()
        if self.manifest_hash is not None and not hmac.compare_digest(self.manifest_hash, found):
            raise ValueError(f"has another content than its manifest_hash: it is {found}")
        self.manifest_hash = found
        return self

    def _check_entries(self) -> None:
        """Raises: an error that names the entry and the member."""
        paths: dict[str, int] = {}
        ids: dict[str, int] = {}
        for number, entry in enumerate(self.entries):
            for name, value, seen in (
                ("path", entry.path, paths),
                ("stable_id", entry.stable_id, ids),
            ):
                if value is None:
                    continue
                if value in seen:
                    text = f"entries.{number}.{name} is the same as entries.{seen[value]}.{name}"
                    raise sentence(text)
                seen[value] = number
        try:
            pack_form.directories([*paths, *self.write_allowlist])
        except ValueError as error:
            raise sentence(f"entries and write_allowlist: their {error}") from None

    def _hash(self) -> str:
        return pack_form.manifest_hash(
            self.manifest_id,
            self.profile_id,
            [(e.path, e.content_hash, e.access_level, e.stable_id) for e in self.entries],
            self.tool_allowlist,
            self.write_allowlist,
            self.shell_allowlist,
        )


class ReadBody(Body):
    """The body of `POST …/reads`."""

    path: Annotated[str, Field(max_length=pack_form.MAX_PATH_BYTES)] = Field(
        description="Relative to the workspace, or under /workspace."
    )
    hash: _Hash | None = Field(
        default=None, description="The content that is expected; `ReadWithZoom` requires it."
    )


class RefineBody(Body):
    """The body of `POST …/refine`. Values of variables are not kept, so they are given again."""

    MOST_BYTES = LARGEST_BODY

    consume: ContextPack
    env: Environment = Field(default_factory=dict)
    secrets: Secrets = Field(default_factory=dict)

    @model_validator(mode="after")
    def _names_once(self) -> Self:
        check_names(self.env, self.secrets)
        return self


class Miss(Model):
    """A read that was denied: by the file operations, or by the sandbox for one of its programs."""

    seq: int = Field(description="Of its audit event.")
    time: Time
    rule: str | None
    path: str | None
    program: str | None = Field(description="The program that read; null for a file operation.")


class PackedFile(Model):
    """A file of a pack."""

    path: str
    content_hash: str | None
    access_level: Annotated[Literal["Read", "ReadWithZoom"], WORDS]
    stable_id: str | None


class PackInfo(Model):
    """A pack in its canonical form."""

    manifest_id: str
    profile_id: str | None
    manifest_hash: str
    mode: Annotated[Literal["hard_fail", "soft_fail", "warn"], WORDS]
    entries: list[PackedFile]
    tool_allowlist: list[str]
    write_allowlist: list[str]
    shell_allowlist: list[str]


class PackState(Model):
    """A session's context pack, and what it was denied."""

    model_config = example(
        {
            "session_id": "sess-4f1c0a9be27d3586",
            "work_id": "fix-login",
            "refinement_count": 0,
            "max_refinements": pack_form.MAX_REFINEMENTS,
            "pack": {
                **EXAMPLE,
                "profile_id": None,
                "manifest_hash": "sha256:"
                "486ea46224d1bb4fb680f34f7c9ad96a8f24ec88be73ea8e5a6c65260e9cb8a7",
                "mode": "hard_fail",
                "entries": [{**EXAMPLE["entries"][0], "access_level": "Read", "stable_id": None}],
                "write_allowlist": [],
            },
            "misses": [
                {
                    "seq": 7,
                    "time": "2026-03-04T09:30:12.482113Z",
                    "rule": "CTX-ALLOWLIST-001",
                    "path": "/workspace/src/users.py",
                    "program": None,
                }
            ],
        }
    )

    session_id: str
    work_id: str | None
    refinement_count: Count
    max_refinements: Count
    pack: PackInfo
    misses: list[Miss]
