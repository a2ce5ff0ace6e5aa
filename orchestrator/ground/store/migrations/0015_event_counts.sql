-- What chains consist of, counted with every event: statistics are read without a look at events.
CREATE TABLE event_counts (
    session_key TEXT NOT NULL,
    operation   TEXT NOT NULL,
    decision    TEXT NOT NULL,               -- empty: the event has none
    events      INTEGER NOT NULL,
    tokens      INTEGER NOT NULL,
    PRIMARY KEY (session_key, operation, decision)
) WITHOUT ROWID;

INSERT INTO event_counts (session_key, operation, decision, events, tokens)
SELECT session_key, operation, coalesce(decision, ''), count(*),
       coalesce(sum(iif(json_valid(body), json_extract(body, '$.tokens_used'), 0)), 0)
FROM events GROUP BY session_key, operation, coalesce(decision, '');
