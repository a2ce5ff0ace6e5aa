-- Chains that were archived: their heads and files. `emptied` once nothing of them is left here.
CREATE TABLE archives (
    session_key TEXT PRIMARY KEY,
    session_id  TEXT NOT NULL,
    owner       TEXT NOT NULL,
    file        TEXT NOT NULL,     -- its name in the archive directory
    sha256      TEXT NOT NULL,
    bytes       INTEGER NOT NULL,
    seq         INTEGER NOT NULL,  -- of the last event of the chain
    hash        TEXT NOT NULL,
    archived_at TEXT NOT NULL,
    emptied     INTEGER NOT NULL DEFAULT 0
);

CREATE INDEX archives_left ON archives (session_key) WHERE emptied = 0;
CREATE INDEX sessions_ended ON sessions (terminated_at) WHERE terminated_at IS NOT NULL;
