package access

import (
	"context"
	"errors"
	"fmt"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
)

// BootstrapEnv names the environment variable that sets the bootstrap token.
const BootstrapEnv = "ZOPDAY_BOOTSTRAP_TOKEN"

const (
	bootstrapName  = "bootstrap"
	bootstrapActor = "system:bootstrap"

	// bootstrapSetting is where installations kept the hash before there was a
	// table of tokens.
	bootstrapSetting = "access.bootstrap-token.sha256"

	// appliedSetting is the hash of the environment's text that was applied last.
	appliedSetting = "access.bootstrap-token.applied.sha256"
)

// Bootstrap makes sure that the first organisation has its bootstrap token, with
// the role Admin. A text given by the environment replaces that of the token that
// stands, once: at later starts with the same text the token stays as it is, also
// if it was rotated or revoked meanwhile. Without one, and if there is none yet, a token is made and returned in fresh: the
// caller shows it once, and it cannot be had again.
func Bootstrap(ctx context.Context, d *db.DB, fromEnv string) (fresh string, err error) {
	if fromEnv != "" {
		if err := checkOwn(fromEnv); err != nil {
			return "", fmt.Errorf("%s: %w", BootstrapEnv, err)
		}
	}
	err = d.InTx(system(ctx), func(ctx context.Context, tx db.Q) error {
		// Of processes that start at once, the first makes the token, and shows it.
		if err := LockOrg(ctx, tx, DefaultOrg); err != nil {
			return err
		}
		stands, err := FindToken(ctx, tx, DefaultOrg, bootstrapName)
		switch {
		case errors.Is(err, ErrMissing):
			fresh, err = firstToken(ctx, tx, fromEnv)
			return err
		case err != nil || fromEnv == "":
			return err
		}
		return applyEnv(ctx, tx, stands, fromEnv)
	})
	return fresh, err
}

// firstToken makes the bootstrap token: of the environment's text, of the hash that
// an old installation kept, or anew.
func firstToken(ctx context.Context, tx db.Q, fromEnv string) (fresh string, err error) {
	old, moved, err := db.Setting(ctx, tx, bootstrapSetting)
	if err != nil {
		return "", err
	}
	secret := fromEnv
	if secret == "" {
		secret = NewSecret()
	}
	t := Token{ID: job.NewID("tok"), OrgID: DefaultOrg, Name: bootstrapName, CreatedBy: bootstrapActor}
	if err := AddToken(ctx, tx, &t, secret); err != nil {
		return "", err
	}
	if err := makeAdmin(ctx, tx, DefaultOrg, t.ID, bootstrapActor); err != nil {
		return "", err
	}
	if moved {
		if _, err := tx.Exec(ctx, `DELETE FROM settings WHERE org_id = '' AND key = $1`, bootstrapSetting); err != nil {
			return "", fmt.Errorf("setting %s: %w", bootstrapSetting, err)
		}
	}
	switch {
	case fromEnv != "":
		if err := db.PutSetting(ctx, tx, appliedSetting, hash(fromEnv)); err != nil {
			return "", err
		}
	case moved:
		if _, err := tx.Exec(ctx, `UPDATE tokens SET hash = $3, hint = '' WHERE org_id = $1 AND id = $2`, DefaultOrg, t.ID, old); err != nil {
			return "", fmt.Errorf("token %s: %w", t.Name, err)
		}
	default:
		fresh = secret
	}
	return fresh, note(ctx, tx, DefaultOrg, bootstrapActor, "token:create", "token", t.ID, map[string]any{"name": t.Name, "role": Admin, "scope": string(OrgScope)})
}

// applyEnv gives the bootstrap token the environment's text, unless that was the last
// one that it was given: what became of the token since was done on purpose.
func applyEnv(ctx context.Context, tx db.Q, t *Token, secret string) error {
	applied, known, err := db.Setting(ctx, tx, appliedSetting)
	if err != nil || known && applied == hash(secret) {
		return err
	}
	if err := replaceBootstrap(ctx, tx, t, secret); err != nil {
		return err
	}
	return db.PutSetting(ctx, tx, appliedSetting, hash(secret))
}

// replaceBootstrap gives the bootstrap token the environment's text.
func replaceBootstrap(ctx context.Context, tx db.Q, t *Token, secret string) error {
	var has, org, id string
	err := tx.QueryRow(ctx, `SELECT hash, org_id, id FROM tokens WHERE hash = $1`, hash(secret)).Scan(&has, &org, &id)
	switch {
	case err == nil && id == t.ID:
		return nil // it is that one already, revoked or not
	case err == nil:
		return fmt.Errorf("%s: the token belongs to something else already; use another", BootstrapEnv)
	case !errors.Is(err, db.ErrNoRows):
		return fmt.Errorf("token %s: %w", t.Name, err)
	}
	t.ExpiresAt, t.Life = nil, 0
	if err := RotateToken(ctx, tx, t, secret); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `UPDATE tokens SET revoked_at = NULL, revoked_by = '' WHERE org_id = $1 AND id = $2`, t.OrgID, t.ID); err != nil {
		return fmt.Errorf("token %s: %w", t.Name, err)
	}
	if err := makeAdmin(ctx, tx, t.OrgID, t.ID, bootstrapActor); err != nil {
		return err
	}
	return note(ctx, tx, t.OrgID, bootstrapActor, "token:rotate", "token", t.ID, map[string]any{"name": t.Name})
}
