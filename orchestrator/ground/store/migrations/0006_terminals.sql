-- Terminals: the index of their transcripts. None outlives its control plane, so one that has
-- no end at a start was cut off by a kill.
CREATE TABLE terminals (
    id          TEXT PRIMARY KEY,
    session_key TEXT NOT NULL,
    opened_at   TEXT NOT NULL,
    ended_at    TEXT,
    record      TEXT NOT NULL  -- as it was when it was opened, or at its end
);

CREATE INDEX terminals_session ON terminals (session_key, opened_at);
CREATE INDEX terminals_open ON terminals (id) WHERE ended_at IS NULL;
