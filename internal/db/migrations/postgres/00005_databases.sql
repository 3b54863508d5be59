-- Logical databases in datastores, and connections to them and to caches.
-- People's columns: deleting, wanted, revealed_at, revealed_by, rotated_at. All others are the engine's, once the row is there.
-- No column holds a secret: those are in the table secrets, under the row's ID and its version.

-- +goose Up
CREATE TABLE databases (
    id         text COLLATE "C" NOT NULL PRIMARY KEY,
    org_id     text COLLATE "C" NOT NULL,
    job_id     text COLLATE "C" NOT NULL,
    name       text NOT NULL,
    owner_role text NOT NULL,
    status     text NOT NULL,
    deleting   boolean NOT NULL DEFAULT false,
    secret     bigint NOT NULL DEFAULT 0,
    attempts   bigint NOT NULL DEFAULT 0,
    error      text,
    created_by text NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL
);
CREATE UNIQUE INDEX databases_name ON databases (job_id, name) WHERE status <> 'deleted';
CREATE INDEX databases_due ON databases (job_id) WHERE status IN ('pending', 'creating') OR (deleting AND status <> 'deleted');

CREATE TABLE connections (
    id          text COLLATE "C" NOT NULL PRIMARY KEY,
    org_id      text COLLATE "C" NOT NULL,
    job_id      text COLLATE "C" NOT NULL,
    database_id text COLLATE "C" NOT NULL DEFAULT '',
    service     text NOT NULL,
    access      text NOT NULL,
    space_id    text NOT NULL DEFAULT '',
    namespace   text NOT NULL DEFAULT '',
    secret_name text NOT NULL DEFAULT '',
    variable    text NOT NULL DEFAULT '',
    role        text NOT NULL,
    shared      boolean NOT NULL DEFAULT false,
    status      text NOT NULL,
    deleting    boolean NOT NULL DEFAULT false,
    begun       boolean NOT NULL DEFAULT false,
    secret      bigint NOT NULL DEFAULT 0,
    wanted      bigint NOT NULL DEFAULT 1,
    attempts    bigint NOT NULL DEFAULT 0,
    error       text,
    revealed_at bigint,
    revealed_by text NOT NULL DEFAULT '',
    rotated_at  bigint,
    created_by  text NOT NULL,
    created_at  bigint NOT NULL,
    updated_at  bigint NOT NULL
);
CREATE UNIQUE INDEX connections_service ON connections (job_id, database_id, service) WHERE status <> 'deleted';
CREATE INDEX connections_due ON connections (job_id) WHERE status IN ('pending', 'creating') OR (deleting AND status <> 'deleted') OR (status = 'ready' AND wanted > secret);

-- +goose Down
DROP TABLE connections;
DROP TABLE databases;
