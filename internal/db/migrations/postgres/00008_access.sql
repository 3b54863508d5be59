-- Who there is, what each may do, and the cloud accounts that jobs work in.
-- Times are microseconds since the epoch. No column holds a secret: tokens and
-- sessions are kept as hashes, the rest in the table secrets under the row's ID.

-- +goose Up
CREATE TABLE organisations (
    id         text COLLATE "C" NOT NULL PRIMARY KEY,
    name       text COLLATE "C" NOT NULL UNIQUE,
    created_at bigint NOT NULL
);
INSERT INTO organisations (id, name, created_at) VALUES ('default', 'default', (extract(epoch from clock_timestamp())*1000000)::bigint);

CREATE TABLE teams (
    id         text COLLATE "C" NOT NULL PRIMARY KEY,
    org_id     text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    created_by text NOT NULL,
    created_at bigint NOT NULL,
    UNIQUE (org_id, name)
);

CREATE TABLE tokens (
    id           text COLLATE "C" NOT NULL PRIMARY KEY,
    org_id       text COLLATE "C" NOT NULL,
    name         text COLLATE "C" NOT NULL,
    hash         text COLLATE "C" NOT NULL UNIQUE,
    hint         text NOT NULL, -- the front of the token, by which a person knows it again
    created_by   text NOT NULL,
    created_at   bigint NOT NULL,
    expires_at   bigint, -- null: never
    last_used_at bigint,
    revoked_at   bigint,
    revoked_by   text NOT NULL DEFAULT '',
    UNIQUE (org_id, name)
);

CREATE TABLE users (
    id         text COLLATE "C" NOT NULL PRIMARY KEY,
    org_id     text COLLATE "C" NOT NULL,
    issuer     text COLLATE "C" NOT NULL,
    subject    text COLLATE "C" NOT NULL,
    name       text NOT NULL DEFAULT '',
    email      text NOT NULL DEFAULT '',
    groups     text NOT NULL DEFAULT '[]', -- of the last sign-in, JSON
    disabled   boolean NOT NULL DEFAULT false,
    created_at bigint NOT NULL,
    seen_at    bigint NOT NULL,
    UNIQUE (org_id, issuer, subject)
);

CREATE TABLE sessions (
    hash       text COLLATE "C" NOT NULL PRIMARY KEY,
    org_id     text COLLATE "C" NOT NULL,
    user_id    text COLLATE "C" NOT NULL,
    groups     text NOT NULL DEFAULT '[]',
    created_at bigint NOT NULL,
    seen_at    bigint NOT NULL,
    expires_at bigint NOT NULL
);
CREATE INDEX sessions_user ON sessions (org_id, user_id);
CREATE INDEX sessions_expire ON sessions (expires_at);

CREATE TABLE roles (
    id          text COLLATE "C" NOT NULL PRIMARY KEY,
    org_id      text COLLATE "C" NOT NULL,
    name        text COLLATE "C" NOT NULL,
    description text NOT NULL DEFAULT '',
    policies    text NOT NULL, -- JSON, sorted
    created_by  text NOT NULL,
    created_at  bigint NOT NULL,
    updated_at  bigint NOT NULL,
    UNIQUE (org_id, name)
);

-- role is the name of a built-in role or the ID of one of the organisation's own.
-- scope_id is '' for the organisation, a team's ID, or the ID of one resource.
CREATE TABLE assignments (
    id           text COLLATE "C" NOT NULL PRIMARY KEY,
    org_id       text COLLATE "C" NOT NULL,
    subject_kind text COLLATE "C" NOT NULL, -- token, user, group
    subject      text COLLATE "C" NOT NULL,
    role         text COLLATE "C" NOT NULL,
    scope_kind   text COLLATE "C" NOT NULL, -- org, team, resource
    scope_id     text COLLATE "C" NOT NULL DEFAULT '',
    created_by   text NOT NULL,
    created_at   bigint NOT NULL,
    UNIQUE (org_id, subject_kind, subject, role, scope_kind, scope_id)
);
CREATE INDEX assignments_role ON assignments (org_id, role);

CREATE TABLE cloud_accounts (
    id               text COLLATE "C" NOT NULL PRIMARY KEY,
    org_id           text COLLATE "C" NOT NULL,
    team_id          text COLLATE "C" NOT NULL DEFAULT '',
    name             text COLLATE "C" NOT NULL,
    provider         text NOT NULL,
    method           text NOT NULL,
    permission_level text NOT NULL, -- read_only, read_write
    reach            text NOT NULL DEFAULT '',
    egress           text NOT NULL DEFAULT '[]', -- CIDRs, JSON
    settings         text NOT NULL DEFAULT '{}',
    holder           text NOT NULL DEFAULT '', -- the AWS account, project or subscription, once verified
    verified_at      bigint,
    verification     text, -- the last answer, JSON
    revision         bigint NOT NULL DEFAULT 1,
    created_by       text NOT NULL,
    created_at       bigint NOT NULL,
    updated_at       bigint NOT NULL,
    UNIQUE (org_id, name)
);

CREATE TABLE webhooks (
    id           text COLLATE "C" NOT NULL PRIMARY KEY,
    org_id       text COLLATE "C" NOT NULL,
    name         text NOT NULL,
    url          text NOT NULL,
    events       text NOT NULL, -- JSON; [] is all
    enabled      boolean NOT NULL DEFAULT true,
    disabled_for text NOT NULL DEFAULT '', -- why it was switched off, if not by a person
    failing_from bigint, -- since when no delivery has worked
    created_by   text NOT NULL,
    created_at   bigint NOT NULL,
    updated_at   bigint NOT NULL,
    UNIQUE (org_id, name)
);

-- A row is the outbox and the history of one message to one webhook.
CREATE TABLE webhook_deliveries (
    id         text COLLATE "C" NOT NULL PRIMARY KEY,
    org_id     text COLLATE "C" NOT NULL,
    webhook_id text COLLATE "C" NOT NULL,
    type       text NOT NULL,
    body       text NOT NULL,
    status     text NOT NULL, -- pending, delivered, failed
    attempts   bigint NOT NULL DEFAULT 0,
    next_at    bigint, -- null: it is over
    held_until bigint,
    code       bigint NOT NULL DEFAULT 0, -- the last answer's status
    error      text NOT NULL DEFAULT '',
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL
);
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX webhook_deliveries_of ON webhook_deliveries (org_id, webhook_id, id);

CREATE INDEX provisioning_jobs_team ON provisioning_jobs (org_id, team_id, created_at, id);
CREATE INDEX provisioning_jobs_account ON provisioning_jobs (org_id, cloud_account_id) WHERE status <> 'cancelled';

-- +goose Down
DROP INDEX provisioning_jobs_account;
DROP INDEX provisioning_jobs_team;
DROP TABLE webhook_deliveries, webhooks, cloud_accounts, assignments, roles, sessions, users, tokens, teams, organisations;
