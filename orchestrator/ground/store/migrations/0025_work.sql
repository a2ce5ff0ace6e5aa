-- What the host calls a session's work, which a session that is issued again has as well; and how
-- often it was issued again.
ALTER TABLE sessions ADD COLUMN work_id TEXT;
ALTER TABLE sessions ADD COLUMN reissues INTEGER NOT NULL DEFAULT 0;
-- The host's own names of the policy that it has applied, and of the episode of the work.
ALTER TABLE sessions ADD COLUMN policy_resolved_ref TEXT;
ALTER TABLE sessions ADD COLUMN episode_id TEXT;
ALTER TABLE sessions ADD COLUMN episodes INTEGER NOT NULL DEFAULT 0;
CREATE INDEX sessions_work ON sessions (work_id) WHERE work_id IS NOT NULL;
