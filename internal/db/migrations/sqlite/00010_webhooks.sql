-- Messages of webhooks: whenever a job changes its state, a trigger writes one for
-- every webhook of its organisation that wants it, in the transaction of the change,
-- whoever makes it. What the message says of the job is in its body.
--
-- IDs begin with their time, so that they sort by it.

-- +goose Up
ALTER TABLE webhooks ADD COLUMN revision integer NOT NULL DEFAULT 1; -- counts changes of its secret
ALTER TABLE webhooks ADD COLUMN before_until integer; -- until when messages are signed with the secret before, too
CREATE INDEX webhook_deliveries_old ON webhook_deliveries (created_at) WHERE next_at IS NULL;

-- +goose StatementBegin
CREATE TRIGGER provisioning_jobs_changed AFTER UPDATE OF status ON provisioning_jobs WHEN NEW.status <> OLD.status
BEGIN
    INSERT INTO webhook_deliveries (id, org_id, webhook_id, type, body, status, next_at, created_at, updated_at)
    SELECT 'msg_' || printf('%014x', NEW.updated_at) || lower(hex(randomblob(8))), NEW.org_id, w.id, 'job.' || NEW.status,
        json_object('id', NEW.id, 'name', NEW.name, 'kind', NEW.kind, 'resourceType', NEW.resource_type, 'provider', NEW.provider, 'mode', NEW.mode,
            'region', NEW.region, 'teamId', NEW.team_id, 'status', NEW.status, 'before', OLD.status, 'phase', NEW.phase, 'run', NEW.run,
            'step', NEW.current_step, 'code', coalesce(json_extract(NEW.error, '$.code'), '')),
        'pending', NEW.updated_at, NEW.updated_at, NEW.updated_at
    FROM webhooks AS w
    WHERE w.org_id = NEW.org_id AND w.enabled AND (w.events = '[]' OR instr(w.events, '"job.' || NEW.status || '"') > 0);
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER provisioning_jobs_made AFTER INSERT ON provisioning_jobs WHEN NEW.status <> 'draft'
BEGIN
    INSERT INTO webhook_deliveries (id, org_id, webhook_id, type, body, status, next_at, created_at, updated_at)
    SELECT 'msg_' || printf('%014x', NEW.updated_at) || lower(hex(randomblob(8))), NEW.org_id, w.id, 'job.' || NEW.status,
        json_object('id', NEW.id, 'name', NEW.name, 'kind', NEW.kind, 'resourceType', NEW.resource_type, 'provider', NEW.provider, 'mode', NEW.mode,
            'region', NEW.region, 'teamId', NEW.team_id, 'status', NEW.status, 'before', '', 'phase', NEW.phase, 'run', NEW.run,
            'step', NEW.current_step, 'code', coalesce(json_extract(NEW.error, '$.code'), '')),
        'pending', NEW.updated_at, NEW.updated_at, NEW.updated_at
    FROM webhooks AS w
    WHERE w.org_id = NEW.org_id AND w.enabled AND (w.events = '[]' OR instr(w.events, '"job.' || NEW.status || '"') > 0);
END;
-- +goose StatementEnd

-- +goose Down
DROP TRIGGER provisioning_jobs_made;
DROP TRIGGER provisioning_jobs_changed;
DROP INDEX webhook_deliveries_old;
ALTER TABLE webhooks DROP COLUMN before_until;
ALTER TABLE webhooks DROP COLUMN revision;
