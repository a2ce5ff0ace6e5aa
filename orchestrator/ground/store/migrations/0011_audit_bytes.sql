-- What a session's chain takes of the ledger: counted with every event, so that it can be bounded.
ALTER TABLE sessions ADD COLUMN audit_bytes INTEGER NOT NULL DEFAULT 0;
UPDATE sessions SET audit_bytes = coalesce(
    (SELECT sum(length(CAST(body AS BLOB)) + 512) FROM events WHERE session_key = sessions.key), 0
);
