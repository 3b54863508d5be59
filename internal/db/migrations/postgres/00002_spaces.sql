-- The registry of spaces: what was built and can be deployed to.

-- +goose Up
CREATE TABLE spaces (
    id           text COLLATE "C" NOT NULL PRIMARY KEY,
    org_id       text COLLATE "C" NOT NULL,
    name         text NOT NULL,
    job_id       text NOT NULL,
    subject_type text NOT NULL,
    subject_id   text NOT NULL,
    provider     text NOT NULL,
    region       text NOT NULL,
    exec_mode    text NOT NULL DEFAULT '',
    created_at   bigint NOT NULL,
    sync_asked_at bigint,
    UNIQUE (org_id, subject_type, subject_id)
);

-- +goose Down
DROP TABLE spaces;
