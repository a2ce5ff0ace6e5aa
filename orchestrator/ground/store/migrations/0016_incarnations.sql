-- Sessions of one id, one after the other, are told apart by a number: 1, 2, and so on.
ALTER TABLE sessions ADD COLUMN incarnation INTEGER NOT NULL DEFAULT 1;
CREATE TEMPORARY TABLE numbered (key TEXT PRIMARY KEY, number INTEGER NOT NULL);
INSERT INTO numbered
SELECT key, row_number() OVER (PARTITION BY id COLLATE BINARY ORDER BY created_at, key)
FROM sessions;
UPDATE sessions SET incarnation = (SELECT number FROM numbered WHERE key = sessions.key);
DROP TABLE numbered;

-- The latest that was given, also to a session that nobody was told of.
CREATE TABLE incarnations (
    id     TEXT PRIMARY KEY,
    latest INTEGER NOT NULL
);
INSERT INTO incarnations
SELECT id, max(incarnation) FROM sessions GROUP BY id COLLATE BINARY;

CREATE INDEX sessions_incarnation ON sessions (id, incarnation);
CREATE INDEX sessions_created ON sessions (created_at, key);
CREATE INDEX sessions_owner ON sessions (owner, created_at, key);

-- What the record is searched by, newest first.
CREATE INDEX events_time ON events (time);
CREATE INDEX events_chain ON events (session_key);
CREATE INDEX events_operations ON events (operation);
-- A body that somebody has broken is found by verifying; it breaks nothing else.
CREATE INDEX events_actor ON events (iif(json_valid(body), json_extract(body, '$.actor'), NULL));
CREATE INDEX events_rule ON events (iif(json_valid(body), json_extract(body, '$.rule'), NULL))
    WHERE iif(json_valid(body), json_extract(body, '$.rule'), NULL) IS NOT NULL;
CREATE INDEX events_decision ON events (decision) WHERE decision IN ('deny', 'pending');
