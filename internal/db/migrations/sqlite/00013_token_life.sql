-- For how long a token was made, so that its next text lasts as long as the one before.

-- +goose Up
ALTER TABLE tokens ADD COLUMN life integer; -- microseconds; null: for ever, or as long as from created_at to expires_at

-- +goose Down
ALTER TABLE tokens DROP COLUMN life;
