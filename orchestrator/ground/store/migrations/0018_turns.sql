-- Events of one turn of a session, in the order of their ids: a page of them is no look at all.
CREATE INDEX events_turn ON events (session_key, turn) WHERE turn IS NOT NULL;
