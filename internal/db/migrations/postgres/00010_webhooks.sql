-- Messages of webhooks: whenever a job changes its state, a trigger writes one for
-- every webhook of its organisation that wants it, in the transaction of the change,
-- whoever makes it. What the message says of the job is in its body.
--
-- IDs begin with their time, so that they sort by it.

-- +goose Up
ALTER TABLE webhooks ADD COLUMN revision bigint NOT NULL DEFAULT 1; -- counts changes of its secret
ALTER TABLE webhooks ADD COLUMN before_until bigint; -- until when messages are signed with the secret before, too
CREATE INDEX webhook_deliveries_old ON webhook_deliveries (created_at) WHERE next_at IS NULL;

-- +goose StatementBegin
CREATE FUNCTION zopday_job_changed() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    earlier text := '';
BEGIN
    IF TG_OP = 'UPDATE' THEN
        earlier := OLD.status;
    END IF;
    INSERT INTO webhook_deliveries (id, org_id, webhook_id, type, body, status, next_at, created_at, updated_at)
    SELECT 'msg_' || lpad(to_hex(NEW.updated_at), 14, '0') || left(replace(gen_random_uuid()::text, '-', ''), 16), NEW.org_id, w.id, 'job.' || NEW.status,
        json_build_object('id', NEW.id, 'name', NEW.name, 'kind', NEW.kind, 'resourceType', NEW.resource_type, 'provider', NEW.provider, 'mode', NEW.mode,
            'region', NEW.region, 'teamId', NEW.team_id, 'status', NEW.status, 'before', earlier, 'phase', NEW.phase, 'run', NEW.run,
            'step', NEW.current_step, 'code', coalesce(NEW.error ->> 'code', ''))::text,
        'pending', NEW.updated_at, NEW.updated_at, NEW.updated_at
    FROM webhooks AS w
    WHERE w.org_id = NEW.org_id AND w.enabled AND (w.events = '[]' OR position('"job.' || NEW.status || '"' IN w.events) > 0);
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER provisioning_jobs_changed AFTER UPDATE OF status ON provisioning_jobs FOR EACH ROW WHEN (NEW.status IS DISTINCT FROM OLD.status) EXECUTE FUNCTION zopday_job_changed();
CREATE TRIGGER provisioning_jobs_made AFTER INSERT ON provisioning_jobs FOR EACH ROW WHEN (NEW.status <> 'draft') EXECUTE FUNCTION zopday_job_changed();

-- +goose Down
DROP TRIGGER provisioning_jobs_made ON provisioning_jobs;
DROP TRIGGER provisioning_jobs_changed ON provisioning_jobs;
DROP FUNCTION zopday_job_changed();
DROP INDEX webhook_deliveries_old;
ALTER TABLE webhooks DROP COLUMN before_until, DROP COLUMN revision;
