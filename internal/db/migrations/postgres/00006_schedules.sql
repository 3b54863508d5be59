-- Schedules that pause and resume pools, and what became of each due time.
-- Times are microseconds since the epoch.

-- +goose Up
CREATE TABLE schedules (
    id           text COLLATE "C" NOT NULL PRIMARY KEY,
    org_id       text COLLATE "C" NOT NULL,
    job_id       text COLLATE "C" NOT NULL,
    subject_id   text COLLATE "C" NOT NULL,
    subject_name text NOT NULL,
    pool         text NOT NULL DEFAULT '',
    spec         text NOT NULL,
    enabled      boolean NOT NULL DEFAULT true,
    next_at      bigint,
    next_action  text NOT NULL DEFAULT '',
    held_until   bigint, -- by the process that acts on next_at
    created_by   text NOT NULL,
    created_at   bigint NOT NULL,
    updated_at   bigint NOT NULL
);
CREATE INDEX schedules_due ON schedules (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX schedules_org ON schedules (org_id, created_at, id);
CREATE UNIQUE INDEX schedules_pool ON schedules (org_id, subject_id, pool);

CREATE TABLE schedule_runs (
    schedule_id text COLLATE "C" NOT NULL,
    due_at      bigint NOT NULL,
    action      text NOT NULL,
    org_id      text COLLATE "C" NOT NULL,
    outcome     text NOT NULL,
    reason      text NOT NULL DEFAULT '',
    job_id      text COLLATE "C" NOT NULL DEFAULT '',
    missed      bigint NOT NULL DEFAULT 0,
    at          bigint NOT NULL,
    PRIMARY KEY (schedule_id, due_at, action)
);

-- +goose Down
DROP TABLE schedule_runs;
DROP TABLE schedules;
