-- What was asked of a session when it was created, as one JSON object instead of a column each.
ALTER TABLE sessions ADD COLUMN terms TEXT NOT NULL DEFAULT '{}';
UPDATE sessions SET terms = json_object(
    'image', image, 'labels', json(labels), 'env', json(env), 'limits', json(limits),
    'idle_timeout', idle_timeout, 'idle_action', idle_action, 'wall_timeout', wall_timeout,
    'mounts', json(mounts), 'role', role, 'tools', json(tools), 'work_id', work_id,
    'policy_resolved_ref', policy_resolved_ref, 'episode_id', episode_id
);
DROP INDEX sessions_work;
ALTER TABLE sessions DROP COLUMN image;
ALTER TABLE sessions DROP COLUMN labels;
ALTER TABLE sessions DROP COLUMN env;
ALTER TABLE sessions DROP COLUMN limits;
ALTER TABLE sessions DROP COLUMN idle_timeout;
ALTER TABLE sessions DROP COLUMN idle_action;
ALTER TABLE sessions DROP COLUMN wall_timeout;
ALTER TABLE sessions DROP COLUMN mounts;
ALTER TABLE sessions DROP COLUMN role;
ALTER TABLE sessions DROP COLUMN tools;
ALTER TABLE sessions DROP COLUMN work_id;
ALTER TABLE sessions DROP COLUMN policy_resolved_ref;
ALTER TABLE sessions DROP COLUMN episode_id;
-- Read from the terms, not stored again: sessions are found by it.
ALTER TABLE sessions ADD COLUMN work_id TEXT
    GENERATED ALWAYS AS (json_extract(terms, '$.work_id')) VIRTUAL;
CREATE INDEX sessions_work ON sessions (work_id) WHERE work_id IS NOT NULL;
