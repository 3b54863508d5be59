package job

import (
	"cmp"
	"slices"
	"strings"
)

// An Unlisted is a kind of objects that a scan by owner mark could not list, as
// the credentials lack a permission: nothing is known of what is left of it.
type Unlisted struct {
	Kind       string `json:"kind"`
	Permission string `json:"permission" doc:"What the credentials lack, in the cloud's words, such as eks:ListClusters"`
	Why        string `json:"why" doc:"What the cloud said"`
}

func (u Unlisted) String() string { return u.Kind + " (without " + u.Permission + ")" }

// SortUnlisted orders what a scan could not list by kind, each kind and
// permission once.
func SortUnlisted(all []Unlisted) []Unlisted {
	slices.SortFunc(all, func(a, b Unlisted) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Permission, b.Permission), cmp.Compare(a.Why, b.Why))
	})
	return slices.CompactFunc(all, func(a, b Unlisted) bool { return a.Kind == b.Kind && a.Permission == b.Permission })
}

// NameUnlisted names what a scan could not list, for a person.
func NameUnlisted(all []Unlisted) string {
	names := make([]string, 0, len(all))
	for _, u := range all {
		names = append(names, u.String())
	}
	return strings.Join(names, ", ")
}

// Unproved parts what a scan could not list into the kinds that the inventory
// has rows of, whose being gone is not proved, and those that the job never had.
func Unproved(objects []Object, all []Unlisted) (had, never []Unlisted) {
	for _, u := range all {
		if slices.ContainsFunc(objects, func(o Object) bool { return o.Kind == u.Kind && o.State != ObjectAbsent }) {
			had = append(had, u)
		} else {
			never = append(never, u)
		}
	}
	return had, never
}
