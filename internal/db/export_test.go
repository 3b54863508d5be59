package db

import "github.com/jackc/pgx/v5/pgxpool"

// PoolOf is the pool behind a PostgreSQL database.
func PoolOf(d *DB) *pgxpool.Pool { return d.b.(*pgDB).pool }

// Dialer makes connections that notice when the other side is gone.
var Dialer = dialer
