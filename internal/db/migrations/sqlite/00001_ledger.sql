-- The ledger, the audit log, the secrets and the settings.
-- Times are microseconds since the epoch in the database's clock.
-- Every table names the organisation a row belongs to; '' is the installation itself.
-- The companions of provisioning_jobs carry no foreign keys: no job row is ever
-- deleted, and the check would lock the job's row once for each row written.

-- +goose Up
CREATE TABLE provisioning_jobs (
    id               text NOT NULL PRIMARY KEY,
    org_id           text NOT NULL,
    team_id          text NOT NULL DEFAULT '',
    kind             text NOT NULL,
    resource_type    text NOT NULL,
    provider         text NOT NULL,
    mode             text NOT NULL,
    name             text NOT NULL,
    cloud_account_id text NOT NULL,
    region           text NOT NULL,
    labels           text NOT NULL DEFAULT '{}',
    subject_type     text NOT NULL,
    subject_id       text NOT NULL,

    -- Engine's columns: the job's checkpoints write them.
    status           text NOT NULL,
    phase            text NOT NULL,
    run              integer NOT NULL,
    vm_op            text NOT NULL DEFAULT '',
    current_step     text NOT NULL DEFAULT '',
    waiting_for      text NOT NULL DEFAULT '',
    attempts         integer NOT NULL DEFAULT 0,
    infra_config     text NOT NULL DEFAULT '{}',
    outputs          text,
    error            text,

    -- People's columns: no checkpoint touches them.
    spec             text NOT NULL,
    spec_revision    integer NOT NULL DEFAULT 1,
    cancel_requested boolean NOT NULL DEFAULT false,

    created_by       text NOT NULL,
    created_at       integer NOT NULL,
    updated_at       integer NOT NULL,
    observed_at      integer,
    version          integer NOT NULL DEFAULT 1,
    event_seq        integer NOT NULL DEFAULT 0,

    next_run_at      integer,
    ever_claimed     boolean NOT NULL DEFAULT false,
    lease_owner      text NOT NULL DEFAULT '',
    lease_token      text,
    lease_expires_at integer,
    taken_from       text NOT NULL DEFAULT '',
    last_write       text NOT NULL DEFAULT '' -- of the latest checkpoint: one that is sent again is known
);
CREATE INDEX provisioning_jobs_due ON provisioning_jobs (next_run_at) WHERE status IN ('queued', 'running');
CREATE UNIQUE INDEX provisioning_jobs_live_name ON provisioning_jobs (org_id, resource_type, name) WHERE status <> 'cancelled';
CREATE UNIQUE INDEX provisioning_jobs_active_subject ON provisioning_jobs (org_id, subject_id) WHERE status IN ('queued', 'running');
CREATE INDEX provisioning_jobs_created ON provisioning_jobs (org_id, created_at, id);
CREATE INDEX provisioning_jobs_observe ON provisioning_jobs (observed_at) WHERE status = 'completed';

CREATE TABLE job_steps (
    job_id      text NOT NULL,
    org_id      text NOT NULL,
    run         integer NOT NULL,
    step        text NOT NULL,
    direction   text NOT NULL,
    status      text NOT NULL,
    attempts    integer NOT NULL DEFAULT 0,
    waiting_for text NOT NULL DEFAULT '',
    note        text NOT NULL DEFAULT '',
    started_at  integer,
    finished_at integer,
    PRIMARY KEY (job_id, run, step, direction)
);

CREATE TABLE job_events (
    job_id  text NOT NULL,
    seq     integer NOT NULL,
    org_id  text NOT NULL,
    time    integer NOT NULL,
    type    text NOT NULL,
    step    text NOT NULL DEFAULT '',
    run     integer NOT NULL DEFAULT 0,
    attempt integer NOT NULL DEFAULT 0,
    message text NOT NULL DEFAULT '',
    PRIMARY KEY (job_id, seq)
);

CREATE TABLE workers (
    id         text NOT NULL PRIMARY KEY,
    org_id     text NOT NULL DEFAULT '',
    host       text NOT NULL DEFAULT '',
    pid        integer NOT NULL DEFAULT 0,
    version    text NOT NULL DEFAULT '',
    started_at integer NOT NULL,
    beat_at    integer NOT NULL
);

CREATE TABLE inventory (
    job_id     text NOT NULL,
    kind       text NOT NULL,
    key        text NOT NULL,
    org_id     text NOT NULL,
    cloud      text NOT NULL,
    account    text NOT NULL,
    region     text NOT NULL,
    cloud_id   text NOT NULL DEFAULT '',
    name       text NOT NULL DEFAULT '',
    step       text NOT NULL DEFAULT '',
    state      text NOT NULL,
    generation integer NOT NULL DEFAULT 0,
    reason     text NOT NULL DEFAULT '',
    intent_at  integer,
    created_at integer,
    removed_at integer,
    PRIMARY KEY (job_id, kind, key)
);
-- Two jobs never own one thing: removing the one would take the other's.
CREATE UNIQUE INDEX inventory_identity ON inventory (cloud, account, region, kind, cloud_id)
    WHERE state IN ('created', 'kept') AND cloud_id <> '';

CREATE TABLE idempotency_keys (
    org_id     text NOT NULL,
    key        text NOT NULL,
    body_hash  text NOT NULL,
    job_id     text NOT NULL,
    created_at integer NOT NULL,
    PRIMARY KEY (org_id, key)
);
CREATE INDEX idempotency_keys_age ON idempotency_keys (org_id, created_at);

CREATE TABLE audit_log (
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
CREATE TABLE audit_heads (
    org_id text NOT NULL PRIMARY KEY,
    seq    integer NOT NULL,
    hash   text NOT NULL
);

CREATE TABLE secrets (
    org_id      text NOT NULL,
    id          text NOT NULL,
    key_id      text NOT NULL,
    wrapped_key blob NOT NULL,
    ciphertext  blob NOT NULL,
    created_at  integer NOT NULL,
    updated_at  integer NOT NULL,
    PRIMARY KEY (org_id, id)
);

CREATE TABLE settings (
    org_id     text NOT NULL DEFAULT '',
    key        text NOT NULL,
    value      text NOT NULL,
    updated_at integer NOT NULL,
    PRIMARY KEY (org_id, key)
);

-- +goose Down
DROP TABLE settings;
DROP TABLE secrets;
DROP TABLE audit_heads;
DROP TABLE audit_log;
DROP TABLE idempotency_keys;
DROP TABLE inventory;
DROP TABLE workers;
DROP TABLE job_events;
DROP TABLE job_steps;
DROP TABLE provisioning_jobs;
