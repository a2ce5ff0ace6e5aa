-- programs: 1
-- What a key has in the whole cluster: its memory, its secrets, and its hooks with their messages.

-- Grow with each change, as nodes see whether what they hold is what there is.
ALTER TABLE cluster ADD COLUMN secrets_version bigint NOT NULL DEFAULT 0;
ALTER TABLE cluster ADD COLUMN hooks_version bigint NOT NULL DEFAULT 0;
-- By it, nodes see whether all of them seal with one key. It tells nothing of the key.
ALTER TABLE cluster ADD COLUMN seal_check text;

-- What sessions remember. `words` has the words of text and tags with their places, as
-- `orchestrator/work/memory/words.py` finds them.
CREATE TABLE memory (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text COLLATE "C" NOT NULL UNIQUE,
    owner text NOT NULL,
    namespace text NOT NULL,
    kind text NOT NULL,
    text text NOT NULL,
    tags jsonb NOT NULL,
    session_id text,
    written_by text NOT NULL,
    created_at text NOT NULL,
    changed_at text NOT NULL,
    words tsvector NOT NULL
);
CREATE INDEX memory_of_owner ON memory (owner, number);
CREATE INDEX memory_of_namespace ON memory (owner, namespace, kind, number);

-- Secrets of keys, and of all keys (an empty `key`), sealed with a key that is not here. Those of
-- sessions are with their sessions.
CREATE TABLE secrets (
    key text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    use jsonb NOT NULL,
    sealed bytea NOT NULL,
    set_by text NOT NULL,
    created_at text NOT NULL,
    set_at text NOT NULL,
    PRIMARY KEY (key, name)
);

-- Hooks that were added over the API, their secrets sealed as above.
CREATE TABLE hooks (
    id text COLLATE "C" PRIMARY KEY,
    url text NOT NULL,
    events jsonb NOT NULL,
    key text,
    managed_by text,
    set_by text NOT NULL,
    created_at text NOT NULL,
    sealed bytea NOT NULL
);

-- Messages that have not been delivered. `due_at`, in seconds since 1970, is NULL while an earlier
-- one of the same session waits; `node` has put it here, and sends it unless it has gone.
CREATE TABLE hook_deliveries (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text COLLATE "C" NOT NULL UNIQUE,
    hook_id text COLLATE "C" NOT NULL,
    node text NOT NULL,
    session_key text COLLATE "C" NOT NULL,
    session_id text NOT NULL,
    type text NOT NULL,
    body text NOT NULL,
    tries int NOT NULL DEFAULT 0,
    due_at double precision,
    tried_at text,
    error text,
    undelivered_at text COLLATE "C"
);
CREATE INDEX hook_deliveries_of_hook ON hook_deliveries (hook_id, number);
CREATE INDEX hook_deliveries_due ON hook_deliveries (hook_id, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX hook_deliveries_waiting ON hook_deliveries (hook_id, session_key, number)
    WHERE undelivered_at IS NULL;
CREATE INDEX hook_deliveries_undelivered ON hook_deliveries (hook_id, number)
    WHERE undelivered_at IS NOT NULL;
