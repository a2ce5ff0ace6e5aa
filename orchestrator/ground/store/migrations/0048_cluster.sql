-- What this node still has to tell its cluster, in the order of the commits. Ids are never used
-- again, so that the cluster knows what it has been told already.
CREATE TABLE outbox (
    id   INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    body TEXT NOT NULL
);
-- The cluster in which a session has a place, and the number of its place; '' and 0: in none.
ALTER TABLE sessions ADD COLUMN cluster TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN place INTEGER NOT NULL DEFAULT 0;
