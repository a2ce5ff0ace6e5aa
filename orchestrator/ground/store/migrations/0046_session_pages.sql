-- 1 once an ended session is no longer shown besides the live ones.
ALTER TABLE sessions ADD COLUMN forgotten INTEGER NOT NULL DEFAULT 0;
CREATE INDEX sessions_to_forget ON sessions (terminated_at)
    WHERE forgotten = 0 AND terminated_at IS NOT NULL;
-- Lists, newest first: of what is shown, of what lives, and of a session's children.
CREATE INDEX sessions_shown ON sessions (created_at, key)
    WHERE forgotten = 0 AND parent_key IS NULL;
CREATE INDEX sessions_shown_of_owner ON sessions (owner, created_at, key)
    WHERE forgotten = 0 AND parent_key IS NULL;
CREATE INDEX sessions_live ON sessions (created_at, key)
    WHERE status IN ('active', 'paused') AND parent_key IS NULL;
CREATE INDEX sessions_live_of_owner ON sessions (owner, created_at, key)
    WHERE status IN ('active', 'paused') AND parent_key IS NULL;
DROP INDEX sessions_of_parent;
CREATE INDEX sessions_of_parent ON sessions (parent_key, created_at, key)
    WHERE parent_key IS NOT NULL;
