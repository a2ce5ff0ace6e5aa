-- Turns of sessions. `result` is a JSON object, null while the turn runs.
CREATE TABLE turns (
    session_key TEXT NOT NULL,
    number      INTEGER NOT NULL,
    started_at  TEXT NOT NULL,
    actor       TEXT NOT NULL,
    ended_at    TEXT,
    result      TEXT,
    PRIMARY KEY (session_key, number)
) WITHOUT ROWID;
CREATE INDEX turns_running ON turns (session_key) WHERE ended_at IS NULL;
-- What a session's programs remember, as a JSON object.
CREATE TABLE turn_notes (
    session_key TEXT PRIMARY KEY,
    notes       TEXT NOT NULL
) WITHOUT ROWID;
