"""Context packs: from requests, and as the API shows them."""

from typing import Literal

from orchestrator.sessions.refinement import Consumed
from orchestrator.state.pack import Pack, PackFile
from paddock.audit.chain import Event
from paddock.contract.pack_form import MAX_REFINEMENTS, ToolClass
from paddock.contract.packs import ContextPack, Miss, PackedFile, PackInfo, PackState

_ZOOM: Literal["ReadWithZoom"] = "ReadWithZoom"


def pack_of(body: ContextPack) -> Pack:
    """The domain's pack of a request, whose validation has completed it."""
    files = [
        PackFile(
            entry.path, entry.content_hash, entry.access_level == _ZOOM, stable_id=entry.stable_id
        )
        for entry in body.entries
    ]
    return Pack(
        manifest_id=body.manifest_id or "",
        manifest_hash=body.manifest_hash or "",
        mode=body.mode,
        profile_id=body.profile_id,
        files={file.path: file for file in files},
        tools=frozenset(map(ToolClass, body.tool_allowlist)),
        writes=tuple(body.write_allowlist),
        commands=tuple(body.shell_allowlist),
    )


def pack_state(shown: Consumed) -> PackState:
    """A session's whole pack, and what it was denied."""
    session = shown.session
    return PackState(
        session_id=session.id,
        work_id=session.terms.work_id,
        refinement_count=session.reissues,
        max_refinements=MAX_REFINEMENTS,
        pack=_info(shown.pack),
        misses=[_miss(event) for event in shown.misses],
    )


def _info(pack: Pack) -> PackInfo:
    entries = [
        PackedFile(
            path=file.path,
            content_hash=file.content_hash,
            access_level=_ZOOM if file.zoom else "Read",
            stable_id=file.stable_id,
        )
        for file in pack.files.values()
    ]
    return PackInfo.model_validate(
        {
            **pack.recorded(),
            "profile_id": pack.profile_id,
            "entries": entries,
            "tool_allowlist": sorted(pack.tools),
            "write_allowlist": list(pack.writes),
            "shell_allowlist": list(pack.commands),
        }
    )


def _miss(event: Event) -> Miss:
    args = event["args"]
    return Miss.model_validate(
        {
            "seq": event["seq"],
            "time": event["time"],
            "rule": event["rule"],
            "path": _text(args.get("path")),
            "program": _text(args.get("program")),
        }
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
