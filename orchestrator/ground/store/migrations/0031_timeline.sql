-- What was said to models, by them, and by their tools. `message` is a JSON object.
CREATE TABLE timeline (
    session_key TEXT NOT NULL,
    seq         INTEGER NOT NULL,
    turn        INTEGER NOT NULL,
    time        TEXT NOT NULL,
    message     TEXT NOT NULL,
    PRIMARY KEY (session_key, seq)
) WITHOUT ROWID;
-- The level and the workspace of the session when the turn began; NULL for turns before this.
ALTER TABLE turns ADD COLUMN permission_level TEXT;
ALTER TABLE turns ADD COLUMN workspace_root TEXT;
