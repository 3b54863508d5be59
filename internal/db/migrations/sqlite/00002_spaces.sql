-- The registry of spaces: what was built and can be deployed to.

-- +goose Up
CREATE TABLE spaces (
    id           text NOT NULL PRIMARY KEY,
    org_id       text NOT NULL,
    name         text NOT NULL,
    job_id       text NOT NULL,
    subject_type text NOT NULL,
    subject_id   text NOT NULL,
    provider     text NOT NULL,
    region       text NOT NULL,
    exec_mode    text NOT NULL DEFAULT '',
    created_at   integer NOT NULL,
    sync_asked_at integer,
    UNIQUE (org_id, subject_type, subject_id)
);

-- +goose Down
DROP TABLE spaces;
