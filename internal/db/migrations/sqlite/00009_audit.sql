-- Entries of the audit log are inserted by whoever changes something, and sealed
-- into their organisation's chain a moment later: seq, prev_hash and hash stay
-- NULL until then. What the table refuses holds for everybody who does not take
-- the triggers away first.

-- +goose Up
CREATE TABLE audit_log_new (
    org_id        text NOT NULL,
    seq           integer,
    id            text NOT NULL,
    time          integer NOT NULL,
    scope         text NOT NULL DEFAULT '',
    actor         text NOT NULL,
    action        text NOT NULL,
    resource_type text NOT NULL DEFAULT '',
    resource_id   text NOT NULL DEFAULT '',
    outcome       text NOT NULL,
    request_id    text NOT NULL DEFAULT '',
    detail        text,
    prev_hash     text,
    hash          text,
    PRIMARY KEY (org_id, id)
);
INSERT INTO audit_log_new (org_id, seq, id, time, scope, actor, action, resource_type, resource_id, outcome, request_id, detail, prev_hash, hash)
    SELECT org_id, seq, id, time, scope, actor, action, resource_type, resource_id, outcome, request_id, detail, prev_hash, hash FROM audit_log;
DROP TABLE audit_log;
ALTER TABLE audit_log_new RENAME TO audit_log;
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
CREATE TRIGGER audit_log_insert BEFORE INSERT ON audit_log WHEN NEW.seq IS NOT NULL OR NEW.prev_hash IS NOT NULL OR NEW.hash IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'the audit log: an entry is sealed after it was written, not with it');
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER audit_log_update BEFORE UPDATE ON audit_log
WHEN OLD.seq IS NOT NULL OR NEW.seq IS NULL OR NEW.prev_hash IS NULL OR NEW.hash IS NULL
    OR (NEW.org_id, NEW.id, NEW.time, NEW.scope, NEW.actor, NEW.action, NEW.resource_type, NEW.resource_id, NEW.outcome, NEW.request_id, coalesce(NEW.detail, ''))
    <> (OLD.org_id, OLD.id, OLD.time, OLD.scope, OLD.actor, OLD.action, OLD.resource_type, OLD.resource_id, OLD.outcome, OLD.request_id, coalesce(OLD.detail, ''))
BEGIN
    SELECT RAISE(ABORT, 'the audit log is append-only: entries are neither changed nor removed');
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER audit_log_delete BEFORE DELETE ON audit_log
BEGIN
    SELECT RAISE(ABORT, 'the audit log is append-only: entries are neither changed nor removed');
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER audit_heads_update BEFORE UPDATE ON audit_heads WHEN NEW.org_id <> OLD.org_id OR NEW.seq <= OLD.seq
BEGIN
    SELECT RAISE(ABORT, 'the audit log: the end of a chain only moves forward');
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER audit_heads_delete BEFORE DELETE ON audit_heads
BEGIN
    SELECT RAISE(ABORT, 'the audit log: the end of a chain only moves forward');
END;
-- +goose StatementEnd

-- +goose Down
DROP TRIGGER audit_heads_delete;
DROP TRIGGER audit_heads_update;
DROP TRIGGER audit_log_delete;
DROP TRIGGER audit_log_update;
DROP TRIGGER audit_log_insert;
CREATE TABLE audit_log_old (
    org_id        text NOT NULL,
    seq           integer NOT NULL,
    id            text NOT NULL,
    time          integer NOT NULL,
    scope         text NOT NULL DEFAULT '',
    actor         text NOT NULL,
    action        text NOT NULL,
    resource_type text NOT NULL DEFAULT '',
    resource_id   text NOT NULL DEFAULT '',
    outcome       text NOT NULL,
    request_id    text NOT NULL DEFAULT '',
    detail        text,
    prev_hash     text NOT NULL,
    hash          text NOT NULL,
    PRIMARY KEY (org_id, seq)
);
INSERT INTO audit_log_old (org_id, seq, id, time, scope, actor, action, resource_type, resource_id, outcome, request_id, detail, prev_hash, hash)
    SELECT org_id, seq, id, time, scope, actor, action, resource_type, resource_id, outcome, request_id, detail, prev_hash, hash FROM audit_log WHERE seq IS NOT NULL;
DROP TABLE audit_log;
ALTER TABLE audit_log_old RENAME TO audit_log;
