-- What the ended sessions of a key have on record, so that a start need not add it up. It follows the
-- rows of sessions, whoever changes them; these are never removed.
ALTER TABLE key_usage ADD COLUMN ended_bytes INTEGER NOT NULL DEFAULT 0;
INSERT INTO key_usage (owner, ended_bytes)
SELECT owner, sum(audit_bytes) FROM sessions WHERE status NOT IN ('active', 'paused') GROUP BY owner
ON CONFLICT (owner) DO UPDATE SET ended_bytes = excluded.ended_bytes;

CREATE TRIGGER ended_bytes_added AFTER INSERT ON sessions
WHEN NEW.status NOT IN ('active', 'paused')
BEGIN
    INSERT INTO key_usage (owner, ended_bytes) VALUES (NEW.owner, NEW.audit_bytes)
    ON CONFLICT (owner) DO UPDATE SET ended_bytes = ended_bytes + excluded.ended_bytes;
END;

CREATE TRIGGER ended_bytes_changed AFTER UPDATE OF audit_bytes, status ON sessions
WHEN NEW.status NOT IN ('active', 'paused') OR OLD.status NOT IN ('active', 'paused')
BEGIN
    INSERT INTO key_usage (owner, ended_bytes)
    VALUES (
        NEW.owner,
        iif(NEW.status IN ('active', 'paused'), 0, NEW.audit_bytes)
        - iif(OLD.status IN ('active', 'paused'), 0, OLD.audit_bytes)
    )
    ON CONFLICT (owner) DO UPDATE SET ended_bytes = ended_bytes + excluded.ended_bytes;
END;
