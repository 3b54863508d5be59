package main

import (
	"context"
	"errors"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/cli"
	"github.com/zopday/provisioner/internal/db"
)

// migrate brings the schema of a database up to date, and gives the service roles
// their rights: the one that is named, and those that were named before.
func migrate(ctx context.Context, dsn, role string) (m cli.Migration, err error) {
	d, err := db.Open(ctx, dsn)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if err := d.Migrate(ctx); err != nil {
		return m, err
	}
	if err := access.FirstEntries(ctx, d); err != nil {
		return m, err
	}
	m.ServiceRoles = []string{}
	if role != "" {
		if err := d.Grant(ctx, role); err != nil {
			return m, err
		}
	}
	roles, err := d.ServiceRoles(ctx)
	if err != nil {
		return m, err
	}
	for _, r := range roles {
		if r != role {
			if err := d.Grant(ctx, r); err != nil {
				return m, err
			}
		}
		m.ServiceRoles = append(m.ServiceRoles, r)
	}
	m.Schema, err = d.Version(ctx)
	return m, err
}
