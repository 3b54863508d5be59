-- Who there is, what each may do, and the cloud accounts that jobs work in.
-- Times are microseconds since the epoch. No column holds a secret: tokens and
-- sessions are kept as hashes, the rest in the table secrets under the row's ID.

-- +goose Up
CREATE TABLE organisations (
    id         text NOT NULL PRIMARY KEY,
    name       text NOT NULL UNIQUE,
    created_at integer NOT NULL
);
INSERT INTO organisations (id, name, created_at) VALUES ('default', 'default', CAST(unixepoch('subsec')*1000000 AS INTEGER));

CREATE TABLE teams (
    id         text NOT NULL PRIMARY KEY,
    org_id     text NOT NULL,
    name       text NOT NULL,
    created_by text NOT NULL,
    created_at integer NOT NULL,
    UNIQUE (org_id, name)
);

CREATE TABLE tokens (
    id           text NOT NULL PRIMARY KEY,
    org_id       text NOT NULL,
    name         text NOT NULL,
    hash         text NOT NULL UNIQUE,
    hint         text NOT NULL, -- the front of the token, by which a person knows it again
    created_by   text NOT NULL,
    created_at   integer NOT NULL,
    expires_at   integer, -- null: never
    last_used_at integer,
    revoked_at   integer,
    revoked_by   text NOT NULL DEFAULT '',
    UNIQUE (org_id, name)
);

CREATE TABLE users (
    id         text NOT NULL PRIMARY KEY,
    org_id     text NOT NULL,
    issuer     text NOT NULL,
    subject    text NOT NULL,
    name       text NOT NULL DEFAULT '',
    email      text NOT NULL DEFAULT '',
    groups     text NOT NULL DEFAULT '[]', -- of the last sign-in, JSON
    disabled   boolean NOT NULL DEFAULT false,
    created_at integer NOT NULL,
    seen_at    integer NOT NULL,
    UNIQUE (org_id, issuer, subject)
);

CREATE TABLE sessions (
    hash       text NOT NULL PRIMARY KEY,
    org_id     text NOT NULL,
    user_id    text NOT NULL,
    groups     text NOT NULL DEFAULT '[]',
    created_at integer NOT NULL,
    seen_at    integer NOT NULL,
    expires_at integer NOT NULL
);
CREATE INDEX sessions_user ON sessions (org_id, user_id);
CREATE INDEX sessions_expire ON sessions (expires_at);

CREATE TABLE roles (
    id          text NOT NULL PRIMARY KEY,
    org_id      text NOT NULL,
    name        text NOT NULL,
    description text NOT NULL DEFAULT '',
    policies    text NOT NULL, -- JSON, sorted
    created_by  text NOT NULL,
    created_at  integer NOT NULL,
    updated_at  integer NOT NULL,
    UNIQUE (org_id, name)
);

-- role is the name of a built-in role or the ID of one of the organisation's own.
-- scope_id is '' for the organisation, a team's ID, or the ID of one resource.
CREATE TABLE assignments (
    id           text NOT NULL PRIMARY KEY,
    org_id       text NOT NULL,
    subject_kind text NOT NULL, -- token, user, group
    subject      text NOT NULL,
    role         text NOT NULL,
    scope_kind   text NOT NULL, -- org, team, resource
    scope_id     text NOT NULL DEFAULT '',
    created_by   text NOT NULL,
    created_at   integer NOT NULL,
    UNIQUE (org_id, subject_kind, subject, role, scope_kind, scope_id)
);
CREATE INDEX assignments_role ON assignments (org_id, role);

CREATE TABLE cloud_accounts (
    id               text NOT NULL PRIMARY KEY,
    org_id           text NOT NULL,
    team_id          text NOT NULL DEFAULT '',
    name             text NOT NULL,
    provider         text NOT NULL,
    method           text NOT NULL,
    permission_level text NOT NULL, -- read_only, read_write
    reach            text NOT NULL DEFAULT '',
    egress           text NOT NULL DEFAULT '[]', -- CIDRs, JSON
    settings         text NOT NULL DEFAULT '{}',
    holder           text NOT NULL DEFAULT '', -- the AWS account, project or subscription, once verified
    verified_at      integer,
    verification     text, -- the last answer, JSON
    revision         integer NOT NULL DEFAULT 1,
    created_by       text NOT NULL,
    created_at       integer NOT NULL,
    updated_at       integer NOT NULL,
    UNIQUE (org_id, name)
);

CREATE TABLE webhooks (
    id           text NOT NULL PRIMARY KEY,
    org_id       text NOT NULL,
    name         text NOT NULL,
    url          text NOT NULL,
    events       text NOT NULL, -- JSON; [] is all
    enabled      boolean NOT NULL DEFAULT true,
    disabled_for text NOT NULL DEFAULT '', -- why it was switched off, if not by a person
    failing_from integer, -- since when no delivery has worked
    created_by   text NOT NULL,
    created_at   integer NOT NULL,
    updated_at   integer NOT NULL,
    UNIQUE (org_id, name)
);

-- A row is the outbox and the history of one message to one webhook.
CREATE TABLE webhook_deliveries (
    id         text NOT NULL PRIMARY KEY,
    org_id     text NOT NULL,
    webhook_id text NOT NULL,
    type       text NOT NULL,
    body       text NOT NULL,
    status     text NOT NULL, -- pending, delivered, failed
    attempts   integer NOT NULL DEFAULT 0,
    next_at    integer, -- null: it is over
    held_until integer,
    code       integer NOT NULL DEFAULT 0, -- the last answer's status
    error      text NOT NULL DEFAULT '',
    created_at integer NOT NULL,
    updated_at integer NOT NULL
);
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX webhook_deliveries_of ON webhook_deliveries (org_id, webhook_id, id);

CREATE INDEX provisioning_jobs_team ON provisioning_jobs (org_id, team_id, created_at, id);
CREATE INDEX provisioning_jobs_account ON provisioning_jobs (org_id, cloud_account_id) WHERE status <> 'cancelled';

-- +goose Down
DROP INDEX provisioning_jobs_account;
DROP INDEX provisioning_jobs_team;

DROP TABLE webhook_deliveries;
DROP TABLE webhooks;
DROP TABLE cloud_accounts;
DROP TABLE assignments;
DROP TABLE roles;
DROP TABLE sessions;
DROP TABLE users;
DROP TABLE tokens;
DROP TABLE teams;
DROP TABLE organisations;
