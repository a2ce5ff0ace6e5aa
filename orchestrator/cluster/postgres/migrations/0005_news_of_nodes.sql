-- programs: 1
-- Gateways are told what changes where requests may go: a node joins, comes back, moves, is drained
-- or given up. Renewals are no news, and the end of a lease is known beforehand.
CREATE FUNCTION nodes_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NOTIFY paddock_nodes;
    RETURN NULL;
END
$$;
CREATE TRIGGER nodes_changed AFTER UPDATE ON nodes FOR EACH ROW
    WHEN (OLD.state <> NEW.state OR OLD.epoch <> NEW.epoch OR OLD.until < NEW.renewed
        OR OLD.report ->> 'url' IS DISTINCT FROM NEW.report ->> 'url'
        OR OLD.report ->> 'joining' IS DISTINCT FROM NEW.report ->> 'joining')
    EXECUTE FUNCTION nodes_changed();
CREATE TRIGGER nodes_made_or_removed AFTER INSERT OR DELETE ON nodes FOR EACH STATEMENT
    EXECUTE FUNCTION nodes_changed();
