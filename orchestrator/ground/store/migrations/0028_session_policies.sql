-- What a session's turns may do, as it was when the session was created; NULL: the default policy.
ALTER TABLE sessions ADD COLUMN policy TEXT;
