-- Up to which event the heads of chains are anchored, the digest of the last anchor, and the one
-- that is not delivered yet.
CREATE TABLE anchor_state (
    position INTEGER NOT NULL,
    previous TEXT NOT NULL,
    pending  TEXT
);
INSERT INTO anchor_state VALUES (
    0, '0000000000000000000000000000000000000000000000000000000000000000', NULL
);
