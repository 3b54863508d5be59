-- The ledger, the audit log, the secrets and the settings.
-- Times are microseconds since the epoch in the database's clock.
-- Every table names the organisation a row belongs to; '' is the installation itself.
-- The companions of provisioning_jobs carry no foreign keys: no job row is ever
-- deleted, and the check would lock the job's row once for each row written.

-- +goose Up
CREATE TABLE provisioning_jobs (
    id               text COLLATE "C" NOT NULL PRIMARY KEY,
    org_id           text COLLATE "C" NOT NULL,
    team_id          text NOT NULL DEFAULT '',
    kind             text NOT NULL,
    resource_type    text NOT NULL,
    provider         text NOT NULL,
    mode             text NOT NULL,
    name             text COLLATE "C" NOT NULL,
    cloud_account_id text NOT NULL,
    region           text NOT NULL,
    labels           jsonb NOT NULL DEFAULT '{}',
    subject_type     text NOT NULL,
    subject_id       text COLLATE "C" NOT NULL,

    -- Engine's columns: the job's checkpoints write them.
    status           text NOT NULL,
    phase            text NOT NULL,
    run              bigint NOT NULL,
    vm_op            text NOT NULL DEFAULT '',
    current_step     text NOT NULL DEFAULT '',
    waiting_for      text NOT NULL DEFAULT '',
    attempts         bigint NOT NULL DEFAULT 0,
    infra_config     json NOT NULL DEFAULT '{}',
    outputs          json,
    error            json,

    -- People's columns: no checkpoint touches them.
    spec             json NOT NULL,
    spec_revision    bigint NOT NULL DEFAULT 1,
    cancel_requested boolean NOT NULL DEFAULT false,

    created_by       text NOT NULL,
    created_at       bigint NOT NULL,
    updated_at       bigint NOT NULL,
    observed_at      bigint,
    version          bigint NOT NULL DEFAULT 1,
    event_seq        bigint NOT NULL DEFAULT 0,

    next_run_at      bigint,
    ever_claimed     boolean NOT NULL DEFAULT false,
    lease_owner      text NOT NULL DEFAULT '',
    lease_token      text,
    lease_expires_at bigint,
    taken_from       text NOT NULL DEFAULT '',
    last_write       text NOT NULL DEFAULT '' -- of the latest checkpoint: one that is sent again is known
) WITH (
    -- Room in each page, so that a checkpoint, which changes no indexed column,
    -- writes the new row beside the old one and touches no index.
    fillfactor = 60,
    -- Documents of a few kilobytes stay in the row: beside it they would be two
    -- more writes, and an attempt to compress them, at each checkpoint.
    toast_tuple_target = 4080,
    autovacuum_vacuum_scale_factor = 0.05
);
CREATE INDEX provisioning_jobs_due ON provisioning_jobs (next_run_at) WHERE status IN ('queued', 'running');
CREATE UNIQUE INDEX provisioning_jobs_live_name ON provisioning_jobs (org_id, resource_type, name) WHERE status <> 'cancelled';
CREATE UNIQUE INDEX provisioning_jobs_active_subject ON provisioning_jobs (org_id, subject_id) WHERE status IN ('queued', 'running');
CREATE INDEX provisioning_jobs_created ON provisioning_jobs (org_id, created_at, id);
CREATE INDEX provisioning_jobs_observe ON provisioning_jobs (observed_at) WHERE status = 'completed';

CREATE TABLE job_steps (
    job_id      text COLLATE "C" NOT NULL,
    org_id      text COLLATE "C" NOT NULL,
    run         bigint NOT NULL,
    step        text COLLATE "C" NOT NULL,
    direction   text COLLATE "C" NOT NULL,
    status      text NOT NULL,
    attempts    bigint NOT NULL DEFAULT 0,
    waiting_for text NOT NULL DEFAULT '',
    note        text NOT NULL DEFAULT '',
    started_at  bigint,
    finished_at bigint,
    PRIMARY KEY (job_id, run, step, direction)
) WITH (fillfactor = 80);

CREATE TABLE job_events (
    job_id  text COLLATE "C" NOT NULL,
    seq     bigint NOT NULL,
    org_id  text COLLATE "C" NOT NULL,
    time    bigint NOT NULL,
    type    text NOT NULL,
    step    text NOT NULL DEFAULT '',
    run     bigint NOT NULL DEFAULT 0,
    attempt bigint NOT NULL DEFAULT 0,
    message text NOT NULL DEFAULT '',
    PRIMARY KEY (job_id, seq)
);

CREATE TABLE workers (
    id         text COLLATE "C" NOT NULL PRIMARY KEY,
    org_id     text COLLATE "C" NOT NULL DEFAULT '',
    host       text NOT NULL DEFAULT '',
    pid        bigint NOT NULL DEFAULT 0,
    version    text NOT NULL DEFAULT '',
    started_at bigint NOT NULL,
    beat_at    bigint NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE inventory (
    job_id     text COLLATE "C" NOT NULL,
    kind       text COLLATE "C" NOT NULL,
    key        text COLLATE "C" NOT NULL,
    org_id     text COLLATE "C" NOT NULL,
    cloud      text NOT NULL,
    account    text NOT NULL,
    region     text NOT NULL,
    cloud_id   text NOT NULL DEFAULT '',
    name       text NOT NULL DEFAULT '',
    step       text NOT NULL DEFAULT '',
    state      text NOT NULL,
    generation bigint NOT NULL DEFAULT 0,
    reason     text NOT NULL DEFAULT '',
    intent_at  bigint,
    created_at bigint,
    removed_at bigint,
    PRIMARY KEY (job_id, kind, key)
);
-- Two jobs never own one thing: removing the one would take the other's.
CREATE UNIQUE INDEX inventory_identity ON inventory (cloud, account, region, kind, cloud_id)
    WHERE state IN ('created', 'kept') AND cloud_id <> '';

CREATE TABLE idempotency_keys (
    org_id     text COLLATE "C" NOT NULL,
    key        text COLLATE "C" NOT NULL,
    body_hash  text NOT NULL,
    job_id     text NOT NULL,
    created_at bigint NOT NULL,
    PRIMARY KEY (org_id, key)
);
CREATE INDEX idempotency_keys_age ON idempotency_keys (org_id, created_at);

CREATE TABLE audit_log (
    org_id        text COLLATE "C" NOT NULL,
    seq           bigint NOT NULL,
    id            text NOT NULL,
    time          bigint NOT NULL,
    scope         text NOT NULL DEFAULT '',
    actor         text NOT NULL,
    action        text NOT NULL,
    resource_type text NOT NULL DEFAULT '',
    resource_id   text NOT NULL DEFAULT '',
    outcome       text NOT NULL,
    request_id    text NOT NULL DEFAULT '',
    detail        json,
    prev_hash     text NOT NULL,
    hash          text NOT NULL,
    PRIMARY KEY (org_id, seq)
);
CREATE TABLE audit_heads (
    org_id text COLLATE "C" NOT NULL PRIMARY KEY,
    seq    bigint NOT NULL,
    hash   text NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE secrets (
    org_id      text COLLATE "C" NOT NULL,
    id          text COLLATE "C" NOT NULL,
    key_id      text NOT NULL,
    wrapped_key bytea NOT NULL,
    ciphertext  bytea NOT NULL,
    created_at  bigint NOT NULL,
    updated_at  bigint NOT NULL,
    PRIMARY KEY (org_id, id)
);

CREATE TABLE settings (
    org_id     text COLLATE "C" NOT NULL DEFAULT '',
    key        text COLLATE "C" NOT NULL,
    value      text NOT NULL,
    updated_at bigint NOT NULL,
    PRIMARY KEY (org_id, key)
);

-- +goose Down
DROP TABLE settings, secrets, audit_heads, audit_log, idempotency_keys, inventory, workers, job_events, job_steps, provisioning_jobs;
