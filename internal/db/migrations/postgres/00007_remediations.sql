-- Remediation jobs are looked up by their subject, before every change of a pool.

-- +goose Up
CREATE INDEX provisioning_jobs_remediations ON provisioning_jobs (org_id, subject_id) WHERE kind = 'remediation';

-- +goose Down
DROP INDEX provisioning_jobs_remediations;
