-- programs: 1
-- Erasures and exports of what owners have. Each node carries out its own part of them.
CREATE TABLE owner_requests (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind text NOT NULL CHECK (kind IN ('erase', 'export')),
    owner text NOT NULL,
    asked_by text NOT NULL,
    reason text NOT NULL,
    asked timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Of each other node that there was then, lost ones included, whose machine may return: `identity` is
-- that of its state directory. Without `result`, it is not done.
CREATE TABLE owner_parts (
    request bigint NOT NULL REFERENCES owner_requests (number) ON DELETE CASCADE,
    node text NOT NULL,
    identity text NOT NULL,
    result jsonb,
    PRIMARY KEY (request, node)
);
CREATE INDEX owner_parts_open ON owner_parts (node) WHERE result IS NULL;
