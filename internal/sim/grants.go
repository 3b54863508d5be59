package sim

import (
	"maps"
	"slices"
)

// SetGrants limits a caller to actions, in the words of its cloud's own access
// control, such as "ec2:RunInstances", "compute.instances.create" or
// "Microsoft.Compute/virtualMachines/write"; * stands for any run of characters.
// caller is what the books write. nil lifts the limit: a caller without one may
// do everything.
func (w *World) SetGrants(cloud, caller string, actions []string) {
	w.grantMu.Lock()
	defer w.grantMu.Unlock()
	if w.grants == nil {
		w.grants = map[grantee][]string{}
	}
	if actions == nil {
		delete(w.grants, grantee{cloud, caller})
		return
	}
	w.grants[grantee{cloud, caller}] = slices.Clone(actions)
}

// Grants are the limits of a cloud's callers, by caller.
func (w *World) Grants(cloud string) map[string][]string {
	w.grantMu.RLock()
	defer w.grantMu.RUnlock()
	out := map[string][]string{}
	for g, actions := range w.grants {
		if g.cloud == cloud {
			out[g.caller] = slices.Clone(actions)
		}
	}
	return out
}

// Granted reports whether a caller may do an action.
func (w *World) Granted(cloud, caller, action string) bool {
	w.grantMu.RLock()
	defer w.grantMu.RUnlock()
	actions, limited := w.grants[grantee{cloud, caller}]
	return !limited || slices.ContainsFunc(actions, func(a string) bool { return globMatch(a, action) })
}

// Denied is the first of the call's actions that its caller may not do; "" if
// there is none. A cloud asks it before it carries a call out, and answers as
// the real one does.
func (w *World) Denied(c *Call) string {
	for _, a := range c.Actions {
		if !w.Granted(c.Cloud, c.Caller, a) {
			return a
		}
	}
	return ""
}

type grantee struct{ cloud, caller string }

// ActionsUsed are the actions of all calls in the books that a filter selects, sorted.
func (w *World) ActionsUsed(f BookFilter) []string {
	used := map[string]bool{}
	for _, e := range w.Books(f) {
		for _, a := range e.Actions {
			used[a] = true
		}
	}
	return slices.Sorted(maps.Keys(used))
}
