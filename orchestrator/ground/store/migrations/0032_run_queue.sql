-- Messages that wait for a session's next run. A number is never given again, so that a run knows
-- what it has taken.
CREATE TABLE run_queue (
    seq         INTEGER PRIMARY KEY AUTOINCREMENT,
    session_key TEXT NOT NULL,
    message     TEXT NOT NULL
);
CREATE INDEX run_queue_session ON run_queue (session_key, seq);
