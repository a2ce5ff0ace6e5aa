-- Searches count the archived chains that they leave out.
CREATE INDEX archives_owner ON archives (owner);
CREATE INDEX archives_session ON archives (session_id);
