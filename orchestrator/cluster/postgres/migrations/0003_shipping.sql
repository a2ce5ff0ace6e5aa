-- programs: 1
-- Copies of chains whose node may be lost: the canonical text of each event, with its hashes.
CREATE TABLE shipped (
    session_key text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    node text NOT NULL,
    body text NOT NULL,
    prev_hash text NOT NULL,
    hash text NOT NULL,
    PRIMARY KEY (session_key, seq)
);

-- Workspaces of sessions with `recovery: snapshot`, by the id of their place. An archive is in
-- pieces; it is complete once all of them are there. All of its bytes count for its owner.
CREATE TABLE workspace_copies (
    id text COLLATE "C" NOT NULL,
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session_key text NOT NULL,
    owner text NOT NULL,
    node text NOT NULL,
    bytes bigint NOT NULL,
    sha256 text NOT NULL,
    handle_sha256 text NOT NULL,
    -- What else the session goes on with; no secrets.
    continued text NOT NULL,
    complete boolean NOT NULL DEFAULT false,
    -- Who takes it over now, and until when nobody else tries.
    taker text,
    taking timestamptz NOT NULL DEFAULT '-infinity',
    made timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX workspace_copies_of_id ON workspace_copies (id);
CREATE TABLE workspace_pieces (
    copy bigint NOT NULL REFERENCES workspace_copies (number) ON DELETE CASCADE,
    number int NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (copy, number)
);
ALTER TABLE workspace_pieces ALTER COLUMN data SET STORAGE EXTERNAL;

-- Rows of sessions that ended long ago are removed.
CREATE INDEX records_ended ON records (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX places_recovered ON places (node) WHERE recovery = 'snapshot';
