-- Entries of the audit log are inserted by whoever changes something, and sealed
-- into their organisation's chain a moment later: seq, prev_hash and hash stay
-- NULL until then. What the table refuses holds for every role, its owner too.

-- +goose Up
ALTER TABLE audit_log DROP CONSTRAINT audit_log_pkey;
ALTER TABLE audit_log
    ALTER COLUMN id TYPE text COLLATE "C",
    ALTER COLUMN seq DROP NOT NULL,
    ALTER COLUMN prev_hash DROP NOT NULL,
    ALTER COLUMN hash DROP NOT NULL;
ALTER TABLE audit_log ADD PRIMARY KEY (org_id, id);
CREATE UNIQUE INDEX audit_log_chain ON audit_log (org_id, seq) WHERE seq IS NOT NULL;
CREATE INDEX audit_log_unsealed ON audit_log (org_id, time, id) WHERE seq IS NULL;
CREATE INDEX audit_log_time ON audit_log (org_id, time, id);
CREATE INDEX audit_log_scope ON audit_log (org_id, scope, time, id);
CREATE INDEX audit_log_actor ON audit_log (org_id, actor, time, id);
CREATE INDEX audit_log_action ON audit_log (org_id, action, time, id);
CREATE INDEX audit_log_type ON audit_log (org_id, resource_type, time, id);
CREATE INDEX audit_log_resource ON audit_log (org_id, resource_id, time, id);
CREATE INDEX audit_log_outcome ON audit_log (org_id, outcome, time, id);
CREATE INDEX audit_log_request ON audit_log (org_id, request_id, time, id);

-- +goose StatementBegin
CREATE FUNCTION audit_log_guard() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.seq IS NULL AND NEW.prev_hash IS NULL AND NEW.hash IS NULL THEN
            RETURN NEW;
        END IF;
        RAISE EXCEPTION 'the audit log: an entry is sealed after it was written, not with it';
    END IF;
    IF TG_OP = 'UPDATE' THEN
        IF OLD.seq IS NULL AND NEW.seq IS NOT NULL AND NEW.prev_hash IS NOT NULL AND NEW.hash IS NOT NULL
            AND (NEW.org_id, NEW.id, NEW.time, NEW.scope, NEW.actor, NEW.action, NEW.resource_type, NEW.resource_id, NEW.outcome, NEW.request_id, coalesce(NEW.detail::text, ''))
              = (OLD.org_id, OLD.id, OLD.time, OLD.scope, OLD.actor, OLD.action, OLD.resource_type, OLD.resource_id, OLD.outcome, OLD.request_id, coalesce(OLD.detail::text, ''))
        THEN
            RETURN NEW;
        END IF;
    END IF;
    RAISE EXCEPTION 'the audit log is append-only: entries are neither changed nor removed';
END $$;
-- +goose StatementEnd
CREATE TRIGGER audit_log_guard BEFORE INSERT OR UPDATE OR DELETE ON audit_log FOR EACH ROW EXECUTE FUNCTION audit_log_guard();
CREATE TRIGGER audit_log_kept BEFORE TRUNCATE ON audit_log FOR EACH STATEMENT EXECUTE FUNCTION audit_log_guard();

-- +goose StatementBegin
CREATE FUNCTION audit_heads_guard() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        IF NEW.org_id = OLD.org_id AND NEW.seq > OLD.seq THEN
            RETURN NEW;
        END IF;
    END IF;
    RAISE EXCEPTION 'the audit log: the end of a chain only moves forward';
END $$;
-- +goose StatementEnd
CREATE TRIGGER audit_heads_guard BEFORE UPDATE OR DELETE ON audit_heads FOR EACH ROW EXECUTE FUNCTION audit_heads_guard();
CREATE TRIGGER audit_heads_kept BEFORE TRUNCATE ON audit_heads FOR EACH STATEMENT EXECUTE FUNCTION audit_heads_guard();

-- +goose Down
DROP TRIGGER audit_heads_kept ON audit_heads;
DROP TRIGGER audit_heads_guard ON audit_heads;
DROP TRIGGER audit_log_kept ON audit_log;
DROP TRIGGER audit_log_guard ON audit_log;
DROP FUNCTION audit_heads_guard();
DROP FUNCTION audit_log_guard();
DELETE FROM audit_log WHERE seq IS NULL;
DROP INDEX audit_log_chain, audit_log_unsealed, audit_log_time, audit_log_scope, audit_log_actor, audit_log_action, audit_log_type, audit_log_resource, audit_log_outcome, audit_log_request;
ALTER TABLE audit_log DROP CONSTRAINT audit_log_pkey;
ALTER TABLE audit_log
    ALTER COLUMN seq SET NOT NULL,
    ALTER COLUMN prev_hash SET NOT NULL,
    ALTER COLUMN hash SET NOT NULL;
ALTER TABLE audit_log ADD PRIMARY KEY (org_id, seq);
