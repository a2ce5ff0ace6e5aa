-- programs: 1
-- Users who have left or signed out: since when nothing older of them is valid, on any node.

-- Grows with each change; nodes read what is newer than what they know.
ALTER TABLE cluster ADD COLUMN users_version bigint NOT NULL DEFAULT 0;

-- `name` is a user's, or the mark and an issuer's.
CREATE TABLE user_ends (
    name text COLLATE "C" NOT NULL,
    what text COLLATE "C" NOT NULL,
    moment timestamptz NOT NULL,
    version bigint NOT NULL,
    PRIMARY KEY (name, what)
);
CREATE INDEX user_ends_version ON user_ends (version);

-- Nodes listen to the first channel, gateways to the second.
CREATE FUNCTION user_ended() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE cluster SET users_version = users_version + 1 RETURNING users_version INTO NEW.version;
    NOTIFY paddock_shared;
    NOTIFY paddock_keys;
    RETURN NEW;
END
$$;
CREATE TRIGGER user_ended BEFORE INSERT OR UPDATE ON user_ends
    FOR EACH ROW EXECUTE FUNCTION user_ended();
