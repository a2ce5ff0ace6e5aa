"""What an instance keeps, where, and for how long, by its settings. Pure."""

from typing import NamedTuple

from orchestrator.settings.settings import Settings


class RetentionRule(NamedTuple):
    """One kind of content: where it is, and for how many seconds after `since` it is kept.

    `seconds` None: until what `ends` says. `setting` changes the time; None: there is none.
    `erased`: whether an erasure of its owner takes it away.
    """

    what: str
    where: str
    since: str
    seconds: int | None
    setting: str | None
    ends: str
    erased: bool


def retention(settings: Settings) -> list[RetentionRule]:
    """All kinds of content, in the order in which a session makes them."""
    state = settings.state_dir
    purge = "a purge on request"
    return [
        RetentionRule(
            "files of workspaces",
            str(state / "slots"),
            "the end of the last session",
            settings.workspace_retention,
            "PADDOCK_WORKSPACE_RETENTION",
            purge,
            erased=True,
        ),
        RetentionRule(
            "files of volumes",
            str(state / "slots"),
            "their creation",
            None,
            None,
            "their removal on request",
            erased=True,
        ),
        RetentionRule(
            "named snapshots",
            str(settings.snapshots_path),
            "their creation",
            settings.snapshot_retention,
            "PADDOCK_SNAPSHOT_RETENTION",
            "their removal on request",
            erased=True,
        ),
        RetentionRule(
            "sessions in lists, with results of commands",
            "memory of the control plane",
            "their end",
            settings.terminated_ttl,
            "PADDOCK_TERMINATED_TTL",
            "a restart",
            erased=True,
        ),
        RetentionRule(
            "the record, approvals, and the history of turns",
            str(state / "paddock.db"),
            "the end of the session",
            settings.audit_retention,
            "PADDOCK_AUDIT_RETENTION",
            "`paddock audit archive`",
            erased=True,
        ),
        RetentionRule(
            "evidence of commands and terminals",
            str(state / "evidence"),
            "the end of the session",
            settings.audit_retention,
            "PADDOCK_AUDIT_RETENTION",
            "`paddock audit archive`",
            erased=True,
        ),
        RetentionRule(
            "archived records with their evidence",
            str(settings.archive_path),
            "their archiving",
            None,
            None,
            "your removal of the files",
            erased=True,
        ),
        RetentionRule(
            "entries of the memory",
            str(state / "paddock.db"),
            "their writing",
            None,
            None,
            "their removal on request",
            erased=True,
        ),
        RetentionRule(
            "secrets of keys, sealed",
            str(state / "paddock.db"),
            "their setting",
            None,
            None,
            "their removal on request",
            erased=False,
        ),
        RetentionRule(
            "lines of the log: who asked for what, without content",
            "standard output",
            "their writing",
            None,
            None,
            "what your log system does",
            erased=False,
        ),
        RetentionRule(
            "backups",
            "where you have put them",
            "their making",
            None,
            None,
            "your removal of the files: a backup has what was there when it was made",
            erased=False,
        ),
    ]
