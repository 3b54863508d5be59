package access

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
)

// A Role is a set of policies under a name.
type Role struct {
	ID          string     `json:"id" doc:"The name, if it is built in"`
	OrgID       string     `json:"-"`
	Name        string     `json:"name"`
	Description string     `json:"description,omitempty"`
	Policies    []Policy   `json:"policies"`
	BuiltIn     bool       `json:"builtIn"`
	CreatedBy   string     `json:"createdBy,omitempty"`
	CreatedAt   *time.Time `json:"createdAt,omitempty"`
	UpdatedAt   *time.Time `json:"updatedAt,omitempty"`
}

var builtInText = map[string]string{
	Admin:  "May do everything",
	Editor: "Makes, changes and deletes resources; sees the audit log; manages neither access nor cloud accounts",
	Viewer: "Sees everything but secrets",
}

// BuiltInRoles are the roles that every organisation has and nobody can change.
func BuiltInRoles() []Role {
	var out []Role
	for _, name := range []string{Admin, Editor, Viewer} {
		out = append(out, Role{ID: name, Name: name, Description: builtInText[name], Policies: BuiltIn(name), BuiltIn: true})
	}
	return out
}

const roleColumns = `id, org_id, name, description, policies, created_by, created_at, updated_at`

func scanRole(row scanner) (Role, error) {
	var (
		r                Role
		policies         string
		created, updated int64
	)
	if err := row.Scan(&r.ID, &r.OrgID, &r.Name, &r.Description, &policies, &r.CreatedBy, &created, &updated); err != nil {
		return r, err
	}
	c, u := fromMicros(created), fromMicros(updated)
	r.CreatedAt, r.UpdatedAt = &c, &u
	if err := json.Unmarshal([]byte(policies), &r.Policies); err != nil {
		return r, fmt.Errorf("role %s: %w", r.ID, err)
	}
	return r, nil
}

// FindRole reads a role by its ID or its name: a built-in one, or one of the
// organisation's own; [ErrMissing].
func FindRole(ctx context.Context, q db.Q, org, ref string) (*Role, error) {
	for _, r := range BuiltInRoles() {
		if r.Name == ref {
			return &r, nil
		}
	}
	r, err := scanRole(q.QueryRow(ctx, `SELECT `+roleColumns+` FROM roles WHERE org_id = $1 AND (id = $2 OR name = $2) ORDER BY CASE WHEN id = $2 THEN 0 ELSE 1 END LIMIT 1`, org, ref))
	if errors.Is(err, db.ErrNoRows) {
		return nil, ErrMissing
	}
	if err != nil {
		return nil, fmt.Errorf("role: %w", err)
	}
	return &r, nil
}

// ListRoles lists an organisation's own roles by name, from after the one that is
// named.
func ListRoles(ctx context.Context, q db.Q, org, after string, limit int) ([]Role, error) {
	return gather(ctx, q, "roles", scanRole, `SELECT `+roleColumns+` FROM roles WHERE org_id = $1 AND name > $2 ORDER BY name LIMIT $3`, org, after, int64(limit))
}

// AddRole stores a role of an organisation's own; [ErrTaken].
func AddRole(ctx context.Context, tx db.Q, r *Role) error {
	policies, err := policyText(r)
	if err != nil {
		return err
	}
	r.ID = job.NewID("role")
	var created int64
	err = tx.QueryRow(ctx, `INSERT INTO roles (id, org_id, name, description, policies, created_by, created_at, updated_at)
		SELECT $1, $2, $3, $4, $5, $6, n.now, n.now FROM (SELECT `+db.Now(tx.Dialect())+` AS now) n WHERE true ON CONFLICT DO NOTHING RETURNING created_at`,
		r.ID, r.OrgID, r.Name, r.Description, policies, r.CreatedBy).Scan(&created)
	if errors.Is(err, db.ErrNoRows) {
		return fmt.Errorf("role %s: %w", r.Name, ErrTaken)
	}
	if err != nil {
		return fmt.Errorf("role %s: %w", r.Name, err)
	}
	at := fromMicros(created)
	r.CreatedAt, r.UpdatedAt = &at, &at
	return nil
}

// UpdateRole stores a role's name, description and policies; [ErrTaken].
func UpdateRole(ctx context.Context, tx db.Q, r *Role) error {
	policies, err := policyText(r)
	if err != nil {
		return err
	}
	var other string
	err = tx.QueryRow(ctx, `SELECT id FROM roles WHERE org_id = $1 AND name = $2 AND id <> $3`, r.OrgID, r.Name, r.ID).Scan(&other)
	if err == nil {
		return fmt.Errorf("role %s: %w", r.Name, ErrTaken)
	}
	if !errors.Is(err, db.ErrNoRows) {
		return fmt.Errorf("role %s: %w", r.Name, err)
	}
	var updated int64
	err = tx.QueryRow(ctx, `UPDATE roles SET name = $3, description = $4, policies = $5, updated_at = (SELECT `+db.Now(tx.Dialect())+`) WHERE org_id = $1 AND id = $2 RETURNING updated_at`,
		r.OrgID, r.ID, r.Name, r.Description, policies).Scan(&updated)
	if err != nil {
		return fmt.Errorf("role %s: %w", r.Name, err)
	}
	at := fromMicros(updated)
	r.UpdatedAt = &at
	return nil
}

// DeleteRole removes a role and its assignments, and says how many those were.
func DeleteRole(ctx context.Context, tx db.Q, org, id string) (assignments int64, err error) {
	if assignments, err = tx.Exec(ctx, `DELETE FROM assignments WHERE org_id = $1 AND role = $2`, org, id); err != nil {
		return 0, fmt.Errorf("assignments of role %s: %w", id, err)
	}
	if _, err := tx.Exec(ctx, `DELETE FROM roles WHERE org_id = $1 AND id = $2`, org, id); err != nil {
		return 0, fmt.Errorf("role %s: %w", id, err)
	}
	return assignments, nil
}

// policyText is a role's policies as they are stored: sorted, each once.
func policyText(r *Role) (string, error) {
	slices.Sort(r.Policies)
	if r.Policies = slices.Compact(r.Policies); r.Policies == nil {
		r.Policies = []Policy{}
	}
	text, err := json.Marshal(r.Policies)
	if err != nil {
		return "", fmt.Errorf("role %s: %w", r.Name, err)
	}
	return string(text), nil
}
