package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/zopday/provisioner/internal/client"
	"github.com/zopday/provisioner/internal/job"
)

// A tally is what a demo ends with.
type tally struct{ created, removed, kept, left int }

func (t tally) String() string {
	return fmt.Sprintf("RECEIPT created=%d removed=%d kept=%d left=%d", t.created, t.removed, t.kept, t.left)
}

// A notBalanced is a receipt that does not add up.
type notBalanced struct{ what string }

func (e *notBalanced) Error() string { return "the receipt does not add up: " + e.what }

// balance compares the whole simulated account before and after, and with the
// receipt: nothing may be left but what was kept on purpose, and nothing that
// was there before may have been touched.
func (a *app) balance(st *stage, owner string, r client.Receipt) (tally, error) {
	t := tally{created: r.Created, removed: r.Removed, kept: r.Kept}
	after := st.sim.Snapshot()
	var kept []string
	for _, o := range r.Objects {
		if o.State == job.ObjectKept {
			kept = append(kept, o.ID)
		}
	}
	var amiss []string
	for _, k := range sortedKeys(after) {
		switch was, ok := st.before[k]; {
		case !ok && !stays(k, kept):
			amiss = append(amiss, "left over: "+k)
			t.left++
		case ok && was != after[k]:
			amiss = append(amiss, "changed: "+k+": "+firstChange(was, after[k]))
			t.left++
		}
	}
	for _, k := range sortedKeys(st.before) {
		if _, ok := after[k]; !ok {
			amiss = append(amiss, "gone, and it was there before: "+k)
			t.left++
		}
	}
	for _, o := range st.sim.Residue(owner) {
		if !stays(o, kept) {
			amiss = append(amiss, "carries this job's mark: "+o)
		}
	}
	if r.Left == nil {
		amiss = append(amiss, "the server could not say what is left")
	} else {
		t.left = max(t.left, *r.Left)
	}
	if len(amiss) == 0 {
		a.tell("\nThe whole simulated account compared, before %s, after %s:\nno difference that was not asked for.", plurals(len(st.before), "object", "objects"), plurals(len(after), "object", "objects"))
	}
	for _, s := range amiss {
		a.tell("  %s", clean(s))
	}
	switch {
	case len(amiss) > 0 || t.left > 0:
		return t, &notBalanced{plurals(max(len(amiss), t.left), "thing is", "things are") + " not as before"}
	case t.created != t.removed+t.kept:
		return t, &notBalanced{t.String()}
	}
	return t, nil
}

// stays reports whether an object, by the simulation's name for it, is one of those
// that were kept: that name ends in the object's ID, or in an ARN that does.
func stays(name string, kept []string) bool {
	return slices.ContainsFunc(kept, func(id string) bool {
		rest, ends := strings.CutSuffix(strings.ToLower(name), strings.ToLower(id))
		return ends && (rest == "" || strings.ContainsAny(rest[len(rest)-1:], "/: "))
	})
}

// firstChange is the first line in which two texts differ.
func firstChange(before, after string) string {
	was, is := strings.Split(before, "\n"), strings.Split(after, "\n")
	for i := range max(len(was), len(is)) {
		a, b := "(nothing)", "(nothing)"
		if i < len(was) {
			a = strings.TrimSpace(was[i])
		}
		if i < len(is) {
			b = strings.TrimSpace(is[i])
		}
		if a != b {
			return a + " became " + b
		}
	}
	return "not in a way that shows"
}
