-- What a space is, where it is, and how it is reached.

-- +goose Up
ALTER TABLE spaces ADD COLUMN space_type text NOT NULL DEFAULT 'vm';
ALTER TABLE spaces ADD COLUMN cloud_account_id text NOT NULL DEFAULT 'default';
ALTER TABLE spaces ADD COLUMN status text NOT NULL DEFAULT 'registered';
ALTER TABLE spaces ADD COLUMN config text NOT NULL DEFAULT '{}';
CREATE INDEX spaces_listed ON spaces (org_id, id);

-- +goose Down
DROP INDEX spaces_listed;
ALTER TABLE spaces DROP COLUMN config;
ALTER TABLE spaces DROP COLUMN status;
ALTER TABLE spaces DROP COLUMN cloud_account_id;
ALTER TABLE spaces DROP COLUMN space_type;
