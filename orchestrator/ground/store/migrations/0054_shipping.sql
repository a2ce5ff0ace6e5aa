-- Up to which event a session's chain is in its cluster's database; NULL: it is not copied there.
ALTER TABLE sessions ADD COLUMN shipped_to INTEGER;
CREATE INDEX sessions_shipped ON sessions (key) WHERE shipped_to IS NOT NULL;
-- Whether it is frozen because its node has no lease.
ALTER TABLE sessions ADD COLUMN fenced INTEGER NOT NULL DEFAULT 0;
