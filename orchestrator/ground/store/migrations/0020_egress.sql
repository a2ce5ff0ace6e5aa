-- What a session may reach besides its level's rules, and what it has used of its way out.
ALTER TABLE sessions ADD COLUMN egress TEXT NOT NULL DEFAULT '{}';
ALTER TABLE sessions ADD COLUMN egress_used TEXT NOT NULL DEFAULT '{}';
-- Connections to the outside whose end is not on record yet.
CREATE TABLE egress_connections (
    id          TEXT PRIMARY KEY,
    session_key TEXT NOT NULL
) WITHOUT ROWID;
