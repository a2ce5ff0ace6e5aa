-- Searches have a database of their own, so commits need not keep what only these use. Dropped pages
-- are not overwritten one by one: they have names, times and rules, and would fill the log.
PRAGMA secure_delete = FAST;
DROP INDEX events_time;
DROP INDEX events_chain;
DROP INDEX events_operations;
DROP INDEX events_actor;
DROP INDEX events_rule;
DROP INDEX events_decision;
DROP INDEX events_operation;
PRAGMA secure_delete = ON;
-- In a chain, most events are of commands. Their starts are found, and so is everything else; their
-- ends are found by their commands.
CREATE INDEX events_started ON events (session_key) WHERE operation = 'command.start';
CREATE INDEX events_rare ON events (session_key, operation)
    WHERE operation NOT IN ('command.start', 'command.exit');
