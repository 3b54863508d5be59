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
)

// Bootstrap makes sure that the first organisation has its bootstrap token, with
// the role Admin. A token given by the environment replaces the text of the one
// that stands, unless it is the very token that was revoked: that stays so.
// Without one, and if there is none yet, a token is made and returned in fresh: the
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
		return replaceBootstrap(ctx, tx, stands, fromEnv)
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
	case moved:
		if _, err := tx.Exec(ctx, `UPDATE tokens SET hash = $3, hint = '' WHERE org_id = $1 AND id = $2`, DefaultOrg, t.ID, old); err != nil {
			return "", fmt.Errorf("token %s: %w", t.Name, err)
		}
	default:
		fresh = secret
	}
	return fresh, note(ctx, tx, DefaultOrg, bootstrapActor, "token:create", "token", t.ID, map[string]any{"name": t.Name, "role": Admin, "scope": string(OrgScope)})
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
	t.ExpiresAt = nil
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
