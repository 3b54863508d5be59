package ledger

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/zopday/provisioner/internal/db"
)

// arrays are rows turned on their side, as unnest takes them.
type arrays struct {
	cols []any // *[]string, *[]*string, *[]int64, *[]*int64 or *[]bool
	rows int
}

// newArrays makes room for rows of the given columns.
func newArrays(cols []column, n int) *arrays {
	a := &arrays{cols: make([]any, len(cols))}
	for i, c := range cols {
		switch c.pgType {
		case "text":
			s := make([]*string, 0, n)
			a.cols[i] = &s
		case "bigint":
			s := make([]*int64, 0, n)
			a.cols[i] = &s
		case "boolean":
			s := make([]bool, 0, n)
			a.cols[i] = &s
		default:
			panic("column " + c.name + ": no array of " + c.pgType)
		}
	}
	return a
}

// add appends one row.
func (a *arrays) add(values ...any) {
	for i, v := range values {
		switch col := a.cols[i].(type) {
		case *[]*string:
			s, ok := v.(string)
			if p, _ := v.(*string); p != nil {
				s, ok = *p, true
			}
			if ok {
				s = db.Clean(s)
				*col = append(*col, &s)
			} else {
				*col = append(*col, nil)
			}
		case *[]*int64:
			if n, ok := v.(int64); ok {
				v = &n
			}
			*col = append(*col, v.(*int64))
		case *[]bool:
			*col = append(*col, v.(bool))
		default:
			panic(fmt.Sprintf("column %d: %T", i, col))
		}
	}
	a.rows++
}

func (a *arrays) args() []any {
	out := make([]any, len(a.cols))
	for i, c := range a.cols {
		switch col := c.(type) {
		case *[]*string:
			out[i] = *col
		case *[]*int64:
			out[i] = *col
		case *[]bool:
			out[i] = *col
		}
	}
	return out
}

// deadlock reports whether a statement was picked to end a deadlock: it wrote
// nothing, and its server is well.
func deadlock(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == "40P01" || pg.Code == "40001")
}
