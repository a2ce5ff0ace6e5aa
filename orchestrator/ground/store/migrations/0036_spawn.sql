-- Children of sessions. `origin` is how a child came to be, as JSON; NULL for a session that a
-- client has created. `workspace_id` is the workspace that it reads; NULL: the one with its own id.
ALTER TABLE sessions ADD COLUMN origin TEXT;
ALTER TABLE sessions ADD COLUMN parent_key TEXT;
ALTER TABLE sessions ADD COLUMN workspace_id TEXT;
CREATE INDEX sessions_of_parent ON sessions (parent_key) WHERE parent_key IS NOT NULL;
-- Spawns that are on record, and whose end is not.
CREATE TABLE spawns (
    id         TEXT PRIMARY KEY,
    parent_key TEXT NOT NULL,
    origin     TEXT NOT NULL,
    child_id   TEXT NOT NULL
) WITHOUT ROWID;
