"""What an instance keeps, where, and for how long, by its settings. Pure."""

from typing import NamedTuple

from orchestrator.settings.settings import Settings

_ASKED = "their removal on request"
_ARCHIVE = "`paddock audit archive`"
_YOURS = "your removal of the files"


class RetentionRule(NamedTuple):
    """One kind of content: where it is, and for how many seconds after `since` it is kept.

    `seconds` None: until what `ends` says. `setting` changes the time; None: there is none.
    `erased`: whether an erasure of its owner takes it away.
    """

    what: str
    where: str
    since: str
    ends: str
    seconds: int | None = None
    setting: str | None = None
    erased: bool = True


def retention(settings: Settings) -> list[RetentionRule]:
    """All kinds of content, in the order in which a session makes them."""
    here, slots = str(settings.state_dir / "paddock.db"), str(settings.state_dir / "slots")
    evidence, archives = str(settings.state_dir / "evidence"), str(settings.archive_path)
    exports, snapshots = str(settings.state_dir / "exports"), str(settings.snapshots_path)
    shared = here if settings.cluster is None else "the cluster's database"
    session = "the end of the session"
    record = (session, _ARCHIVE, settings.audit_retention, "PADDOCK_AUDIT_RETENTION")
    copies = (session, "nothing before", settings.cluster_retention, "PADDOCK_CLUSTER_RETENTION")
    rules = [
        RetentionRule(
            *("files of workspaces", slots, "the end of the last session", "a purge on request"),
            *(settings.workspace_retention, "PADDOCK_WORKSPACE_RETENTION"),
        ),
        RetentionRule("files of volumes", slots, "their creation", _ASKED),
        RetentionRule(
            *("named snapshots", snapshots, "their creation", _ASKED),
            *(settings.snapshot_retention, "PADDOCK_SNAPSHOT_RETENTION"),
        ),
        RetentionRule(
            "sessions in lists, with results of commands",
            "memory of the control plane",
            *("their end", "a restart", settings.terminated_ttl, "PADDOCK_TERMINATED_TTL"),
        ),
        RetentionRule("the record, approvals, and the history of turns", here, *record),
        RetentionRule("evidence of commands and terminals", evidence, *record),
        RetentionRule("archived records with their evidence", archives, "their archiving", _YOURS),
        RetentionRule("entries of the memory", shared, "their writing", _ASKED),
        RetentionRule("secrets of keys, sealed", shared, "their setting", _ASKED),
        RetentionRule("hooks of keys, with messages that wait", shared, "their making", _ASKED),
        RetentionRule("exports of owners", exports, "their making", "the next one of the owner"),
    ]
    if settings.cluster is not None:
        rules.append(RetentionRule("ended sessions in lists, copied records", shared, *copies))
    return [
        *rules,
        RetentionRule(
            *("lines of the log: who asked for what, without content", "standard output"),
            *("their writing", "what your log system does"),
            erased=False,
        ),
        RetentionRule(
            *("backups", "where you have put them", "their making"),
            f"{_YOURS}: a backup has what was there when it was made",
            erased=False,
        ),
    ]
