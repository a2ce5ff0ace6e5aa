-- What a session may use up and has used, and how long it may last at most.
ALTER TABLE sessions ADD COLUMN budget TEXT NOT NULL DEFAULT '{}';
ALTER TABLE sessions ADD COLUMN wall_timeout INTEGER;  -- seconds; NULL: as long as it likes
