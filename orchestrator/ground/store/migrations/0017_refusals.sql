-- Since when refusals of the session are counted that are not on record yet; NULL: there are none.
ALTER TABLE sessions ADD COLUMN refusals_since TEXT;
CREATE INDEX sessions_refusals ON sessions (key) WHERE refusals_since IS NOT NULL;
