-- looked_at is when an observer last tried to look at a finished job, and decides
-- whose turn is next; observed_at is when it last saw the job.

-- +goose Up
ALTER TABLE provisioning_jobs ADD COLUMN looked_at integer;
UPDATE provisioning_jobs SET looked_at = observed_at WHERE observed_at IS NOT NULL;
DROP INDEX provisioning_jobs_observe;
CREATE INDEX provisioning_jobs_observe ON provisioning_jobs (looked_at) WHERE status = 'completed';

-- +goose Down
DROP INDEX provisioning_jobs_observe;
ALTER TABLE provisioning_jobs DROP COLUMN looked_at;
CREATE INDEX provisioning_jobs_observe ON provisioning_jobs (observed_at) WHERE status = 'completed';
