-- How far a session's sandbox was given up: suspended, or being restored; and what its owner asked
-- for when it is idle: end or suspend.
ALTER TABLE sessions ADD COLUMN suspension TEXT;
ALTER TABLE sessions ADD COLUMN idle_action TEXT;
