-- Approvals of one session, and those of a key by what became of them, in the order of their numbers.
CREATE INDEX approvals_session ON approvals (session_key, number);
CREATE INDEX approvals_owner_status ON approvals (owner, status, number);
