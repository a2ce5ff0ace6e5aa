-- programs: 1
-- What a cluster shares. Times are the database's, but those of sessions, which are the nodes' text
-- as in their records. Cores are counted in millionths, so that sums are exact.
CREATE TABLE cluster (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    name text NOT NULL,
    -- Grows with each change of the keys.
    keys_version bigint NOT NULL DEFAULT 0
);

CREATE TABLE nodes (
    name text PRIMARY KEY,
    -- Another one after the node was forgotten.
    epoch bigint NOT NULL,
    -- The state directory that has the name, and the process that works for it now.
    identity text NOT NULL,
    holder text NOT NULL,
    state text NOT NULL CHECK (state IN ('ready', 'draining', 'gone')),
    report jsonb NOT NULL,
    renewed timestamptz NOT NULL,
    until timestamptz NOT NULL
);

-- The last message of a node's outbox that was applied. Not in `nodes`, so that a renewal waits for
-- no delivery.
CREATE TABLE outboxes (
    node text NOT NULL,
    epoch bigint NOT NULL,
    applied bigint NOT NULL,
    PRIMARY KEY (node, epoch)
);

-- Where sessions live. Ids are lower-case.
CREATE TABLE places (
    id text COLLATE "C" PRIMARY KEY,
    session_key text NOT NULL UNIQUE,
    owner text NOT NULL,
    node text NOT NULL,
    epoch bigint NOT NULL,
    number bigint NOT NULL,
    recovery text NOT NULL,
    sessions bigint NOT NULL,
    micro_cpus bigint NOT NULL,
    memory_bytes bigint NOT NULL,
    workspaces bigint NOT NULL,
    -- What the workspace had before the claim, which a withdrawn claim restores; 0: there was none.
    workspace_before bigint NOT NULL,
    claimed timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX places_of_node ON places (node);

-- Workspaces, those without a session included, and volumes: whose they are, and where.
CREATE TABLE workspaces (
    id text COLLATE "C" PRIMARY KEY,
    owner text NOT NULL,
    node text NOT NULL,
    bytes bigint NOT NULL,
    volume boolean NOT NULL DEFAULT false,
    since timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX workspaces_of_node ON workspaces (node);
CREATE INDEX workspaces_of_owner ON workspaces (owner, since);

-- All sessions, with what lists show, and the node that has the record of each.
CREATE TABLE records (
    session_key text COLLATE "C" PRIMARY KEY,
    id text COLLATE "C" NOT NULL,
    session_id text NOT NULL,
    owner text NOT NULL,
    node text NOT NULL,
    created_at text COLLATE "C" NOT NULL,
    ended_at text COLLATE "C",
    status text NOT NULL,
    level text NOT NULL,
    labels jsonb NOT NULL,
    work_id text,
    parent text COLLATE "C"
);
CREATE INDEX records_of_id ON records (id, created_at DESC);
CREATE INDEX records_of_owner ON records (owner, created_at, session_key);
CREATE INDEX records_created ON records (created_at, session_key);
CREATE INDEX records_live ON records (created_at, session_key) WHERE ended_at IS NULL;
CREATE INDEX records_of_node ON records (node) WHERE ended_at IS NULL;
CREATE INDEX records_of_parent ON records (parent, created_at, session_key)
    WHERE parent IS NOT NULL;

CREATE TABLE key_usage (
    owner text PRIMARY KEY,
    sessions bigint NOT NULL DEFAULT 0,
    micro_cpus bigint NOT NULL DEFAULT 0,
    memory_bytes bigint NOT NULL DEFAULT 0,
    workspaces bigint NOT NULL DEFAULT 0,
    workspace_bytes bigint NOT NULL DEFAULT 0
);

-- What is lent to nodes in portions: bytes of the record, and to and from the outside.
CREATE TABLE key_shares (
    owner text NOT NULL,
    node text NOT NULL,
    kind text NOT NULL,
    granted bigint NOT NULL,
    used bigint NOT NULL,
    PRIMARY KEY (owner, node, kind)
);

-- API keys by digest; an entry has the members of a `[[keys]]` table.
CREATE TABLE keys (
    name text PRIMARY KEY,
    sha256 text NOT NULL UNIQUE,
    entry jsonb NOT NULL
);

CREATE FUNCTION keys_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE cluster SET keys_version = keys_version + 1;
    NOTIFY paddock_keys;
    RETURN NULL;
END
$$;
CREATE TRIGGER keys_changed AFTER INSERT OR UPDATE OR DELETE ON keys
    FOR EACH STATEMENT EXECUTE FUNCTION keys_changed();
