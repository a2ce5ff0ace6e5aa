-- Open ports of sessions. `opening` is a random name for which links hold.
CREATE TABLE ports (
    session_key TEXT NOT NULL,
    port        INTEGER NOT NULL,
    opening     TEXT NOT NULL,
    opened_at   TEXT NOT NULL,
    opened_by   TEXT NOT NULL,
    expires_at  TEXT NOT NULL,
    PRIMARY KEY (session_key, port)
) WITHOUT ROWID;
