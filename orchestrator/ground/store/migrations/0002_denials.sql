-- Refusals are few, and looked for among many events.
CREATE INDEX events_denied ON events (session_key, seq) WHERE decision = 'deny';
