"""Named points of the code at which `make chaos` kills the control plane."""

from enum import StrEnum


class FaultPoint(StrEnum):
    """`operation.what was just done`.

    To add one: a line here, and a call of `reached` where it is done. The tests of a new operation
    need a scenario, too (`tests/chaos/scenarios.py`).
    """

    START_LOCKED = "start.locked"
    START_LISTED = "start.listed"
    START_TAKEN_UP = "start.taken_up"  # a session
    START_SWEPT = "start.swept"
    START_RECORDED = "start.recorded"
    START_COMPARED = "start.compared"  # its sessions with its cluster, if there is one

    CREATE_CLAIMED = "create.claimed"  # its place in the cluster, if there is one
    CREATE_RECORDED = "create.recorded"
    CREATE_IMAGE_MADE = "create.image_made"
    CREATE_SLOT_TAKEN = "create.slot_taken"
    CREATE_SHOWN = "create.shown"
    CREATE_CONTAINER_MADE = "create.container_made"
    CREATE_PART_OPENED = "create.part_opened"  # any part of the sandbox
    CREATE_ACKNOWLEDGED = "create.acknowledged"

    LINK_STARTED = "link.started"  # the container runs, without its network
    LINK_MADE = "link.made"

    SPAWN_RECORDED = "spawn.recorded"  # there is no child yet
    SPAWN_JOINED = "spawn.joined"  # the child is acknowledged, but its client does not know it
    SPAWN_ENDING = "spawn.ending"  # the child has ended, but its parent has no record of that

    EXEC_RECORDED = "exec.recorded"
    EXEC_DISPATCHED = "exec.dispatched"
    EXEC_REPORTED = "exec.reported"  # the agent's event is durable, but not acknowledged
    EXEC_ENDED = "exec.ended"

    FILE_OPENED = "file.opened"
    FILE_PUSHED = "file.pushed"
    FILE_COMMITTED = "file.committed"

    TERMINAL_COUNTED = "terminal.counted"
    TERMINAL_RECORDED = "terminal.recorded"
    TERMINAL_STARTED = "terminal.started"
    TERMINAL_CLOSED = "terminal.closed"

    LEVEL_FROZEN = "level.frozen"
    LEVEL_RECORDED = "level.recorded"
    LEVEL_ENDED = "level.ended"
    LEVEL_REMOVED = "level.removed"
    LEVEL_STARTED = "level.started"
    LEVEL_STORED = "level.stored"

    PAUSE_FROZEN = "pause.frozen"
    PAUSE_RECORDED = "pause.recorded"
    RESUME_THAWED = "resume.thawed"
    RESUME_RECORDED = "resume.recorded"

    SUSPEND_RECORDED = "suspend.recorded"
    SUSPEND_REMOVED = "suspend.removed"
    RESTORE_RECORDED = "restore.recorded"
    RESTORE_STARTED = "restore.started"
    RESTORE_STORED = "restore.stored"

    REFINE_MISSED = "refine.missed"  # the denied read is recorded, the session lives
    REFINE_ENDED = "refine.ended"  # recorded, without the request
    REFINE_REQUESTED = "refine.requested"
    REFINE_COUNTED = "refine.counted"
    REFINE_COMPARED = "refine.compared"  # the files are compared with the new pack

    TURN_RECORDED = "turn.recorded"  # its start
    TURN_OPERATED = "turn.operated"  # an operation is recorded
    TURN_DRIVEN = "turn.driven"  # the program has ended, which is not recorded yet
    TURN_ENDED = "turn.ended"

    COMMIT_ASKED = "commit.asked"  # a helper has a request, of any kind
    COMMIT_PREPARED = "commit.prepared"
    COMMIT_RECORDED = "commit.recorded"
    COMMIT_APPLIED = "commit.applied"  # but not recorded yet
    COMMIT_ENDED = "commit.ended"
    ROLLBACK_RECORDED = "rollback.recorded"
    ROLLBACK_BEGUN = "rollback.begun"  # the part that makes the area complete is gone
    ROLLBACK_MADE = "rollback.made"

    CLOSE_FROZEN = "close.frozen"
    CLOSE_RECORDED = "close.recorded"
    CLOSE_SILENCED = "close.silenced"
    CLOSE_PART_CLOSED = "close.part_closed"  # any part of the sandbox

    VOLUME_NAMED = "volume.named"  # in the cluster, if there is one
    VOLUME_RECORDED = "volume.recorded"
    VOLUME_MADE = "volume.made"  # its files, which is not recorded yet

    SNAPSHOT_NAMED = "snapshot.named"  # in the cluster, if there is one
    SNAPSHOT_RECORDED = "snapshot.recorded"  # its start
    SNAPSHOT_FROZEN = "snapshot.frozen"  # what writes to the workspace waits
    SNAPSHOT_COPIED = "snapshot.copied"
    SNAPSHOT_ENDED = "snapshot.ended"
    ERASE_RECORDED = "erase.recorded"
    ERASE_FILES_REMOVED = "erase.files_removed"
    ERASE_ROWS_ERASED = "erase.rows_erased"

    SNAPSHOT_FORGOTTEN = "snapshot.forgotten"  # its file is still there
    SNAPSHOT_PLACED = "snapshot.placed"  # in the workspace of a new session

    TEMPLATE_RECORDED = "template.recorded"
    TEMPLATE_RAN = "template.ran"  # its commands
    TEMPLATE_TAKEN = "template.taken"  # the session that has prepared it is still there

    AHEAD_FILLED = "ahead.filled"  # a slot with files is complete, and nobody can take it yet
    AHEAD_TAKEN = "ahead.taken"  # the slot is a new session's

    FORK_RECORDED = "fork.recorded"
    FORK_STARTED = "fork.started"  # all sandboxes run, and no session is acknowledged
    FORK_ACKNOWLEDGED = "fork.acknowledged"

    ARRIVE_RECORDED = "arrive.recorded"  # a session that moves here, without its files
    ARRIVE_FILLED = "arrive.filled"
    ARRIVE_OFFERED = "arrive.offered"  # its place may become this node's
    ARRIVE_ACTIVATED = "arrive.activated"
    ARRIVE_FORGOTTEN = "arrive.forgotten"  # it did not become active; its files are still there
    LEAVE_RECORDED = "leave.recorded"  # a session that moves away still has its sandbox
    LEAVE_PACKED = "leave.packed"
    LEAVE_SENT = "leave.sent"
    LEAVE_COMMITTED = "leave.committed"  # its place is the other node's
    LEAVE_ENDED = "leave.ended"  # here; its files are still there

    OUTBOX_DELIVERED = "outbox.delivered"  # messages, which are in the outbox still

    PURGE_ORDERED = "purge.ordered"
    PURGE_HIDDEN = "purge.hidden"
    PURGE_UNMOUNTED = "purge.unmounted"
    PURGE_IMAGE_REMOVED = "purge.image_removed"
    PURGE_REMOVED = "purge.removed"

    def reached(self) -> None:
        """Does nothing. The control plane of the chaos tests replaces it with its own death."""
