-- Who the session's agent is for policies, and which tools it may open (NULL: any).
ALTER TABLE sessions ADD COLUMN role TEXT NOT NULL DEFAULT 'agent';
ALTER TABLE sessions ADD COLUMN tools TEXT;
