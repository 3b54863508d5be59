package job

import "slices"

// Visible says which of an organisation's resources a caller may see or change.
// The zero value covers nothing.
type Visible struct {
	All   bool
	Teams []string // every resource of these teams
	IDs   []string // and these single ones, by their own ID or that of the job they belong to
}

// Everything covers all of an organisation: the caller holds a policy for the
// whole of it, or is the system itself.
var Everything = Visible{All: true}

// Covers reports whether a resource of a team ("" for none) is covered; ids are
// its own ID and those of what it belongs to.
func (v Visible) Covers(team string, ids ...string) bool {
	return v.All || team != "" && slices.Contains(v.Teams, team) ||
		slices.ContainsFunc(ids, func(id string) bool { return id != "" && slices.Contains(v.IDs, id) })
}

// Nothing reports whether nothing at all is covered.
func (v Visible) Nothing() bool { return !v.All && len(v.Teams) == 0 && len(v.IDs) == 0 }
