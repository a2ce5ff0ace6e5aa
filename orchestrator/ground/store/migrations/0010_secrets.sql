-- Of a session's secrets only the names are stored, and the key of the seals by which the control
-- plane knows the values again when it gets them back from the sandbox.
ALTER TABLE sessions ADD COLUMN secret_names TEXT NOT NULL DEFAULT '[]';
ALTER TABLE sessions ADD COLUMN seal_key BLOB NOT NULL DEFAULT x'';
-- The values of variables are kept for as long as a session lives.
UPDATE sessions SET env = '{}' WHERE status NOT IN ('active', 'paused');
