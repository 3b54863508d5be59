-- SQLite has no row-level security: a file belongs to one process, and every
-- statement names its organisation. The number is kept the same on both.

-- +goose Up
SELECT 1;

-- +goose Down
SELECT 1;
