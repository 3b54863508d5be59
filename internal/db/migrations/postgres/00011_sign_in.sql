-- Sign-ins that have begun and not come back from their issuer. The row is found by
-- the hash of what the browser holds, from which everything secret is derived.

-- +goose Up
CREATE TABLE sign_ins (
    hash       text COLLATE "C" NOT NULL PRIMARY KEY,
    org_id     text COLLATE "C" NOT NULL,
    issuer     text COLLATE "C" NOT NULL,
    next       text NOT NULL, -- the path to go on to
    expires_at bigint NOT NULL
);
CREATE INDEX sign_ins_expire ON sign_ins (expires_at);

-- An address names one person of an organisation.
CREATE UNIQUE INDEX users_email ON users (org_id, email) WHERE email <> '';

-- +goose Down
DROP INDEX users_email;
DROP TABLE sign_ins;
