-- Copies of workspaces, kept under names of their owners. `name` is NULL for the one from which a
-- fork makes its sessions. `size` is that of the workspace, `bytes` what the copy takes on the
-- disk, `used_bytes` what its files need. `ready` is 0 until the copy is complete.
CREATE TABLE snapshots (
    id          TEXT PRIMARY KEY,
    owner       TEXT NOT NULL,
    name        TEXT,
    session_id  TEXT NOT NULL,
    session_key TEXT NOT NULL,
    created_at  TEXT NOT NULL,
    size        INTEGER NOT NULL,
    bytes       INTEGER NOT NULL,
    used_bytes  INTEGER NOT NULL,
    method      TEXT,
    frozen_us   INTEGER NOT NULL DEFAULT 0,
    sha256      TEXT,
    ready       INTEGER NOT NULL DEFAULT 0
);

CREATE UNIQUE INDEX snapshots_by_name ON snapshots (owner, name);
