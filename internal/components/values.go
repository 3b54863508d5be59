package components

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/zopday/provisioner/internal/job"
)

// Facts are what values can be taken from a cluster.
type Facts struct {
	Name    string // of the cluster
	Region  string
	Network string // ID of the network
	Account string // AWS account ID, GCP project ID or Azure subscription ID
}

// Fill sets the values that a component takes from its cluster, where the
// request does not set them.
func (c *Catalogue) Fill(s job.ComponentSpec, f Facts) (job.ComponentSpec, error) {
	entry, ok := c.Get(s.Name)
	if !ok || len(entry.FromCluster) == 0 {
		return s, nil
	}
	values, err := parseValues(s.Values)
	if err != nil {
		return s, err
	}
	facts := map[string]string{factName: f.Name, factRegion: f.Region, factNetwork: f.Network, factAccount: f.Account}
	for path, fact := range entry.FromCluster {
		if v := facts[fact]; v != "" {
			values = mergeValues(nest(strings.Split(path, "."), v), values)
		}
	}
	s.Values, err = json.Marshal(values)
	return s, err
}

func nest(path []string, v any) map[string]any {
	if len(path) > 1 {
		v = nest(path[1:], v)
	}
	return map[string]any{path[0]: v}
}

// parseValues reads values as Helm does: a number stays as it is written.
func parseValues(raw json.RawMessage) (map[string]any, error) {
	out := map[string]any{}
	if len(bytes.TrimSpace(raw)) == 0 {
		return out, nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&out); err != nil {
		return nil, &job.Invalid{Fields: []job.FieldError{{Field: "values", Message: "is not an object", Fix: "give Helm values as an object"}}}
	}
	if out == nil {
		out = map[string]any{}
	}
	return out, nil
}

// mergeValues lays values over others: objects are merged, everything else is
// replaced. A null stays one, which is how Helm takes a default away.
func mergeValues(under, over map[string]any) map[string]any {
	out := maps.Clone(under)
	if out == nil {
		out = map[string]any{}
	}
	for k, v := range over {
		a, both := out[k].(map[string]any)
		b, objects := v.(map[string]any)
		if both && objects {
			out[k] = mergeValues(a, b)
		} else {
			out[k] = v
		}
	}
	return out
}

// plain is a copy of values in which equal ones compare equal, whatever they
// were read from.
func plain(values map[string]any) map[string]any {
	b, err := json.Marshal(values)
	out := map[string]any{}
	if err != nil || json.Unmarshal(b, &out) != nil || out == nil {
		return map[string]any{}
	}
	return out
}

// clone is a copy of values that templates can be given: numbers are as they
// were written.
func clone(values map[string]any) map[string]any {
	b, err := json.Marshal(values)
	if err != nil {
		return map[string]any{}
	}
	out, err := parseValues(b)
	if err != nil {
		return map[string]any{}
	}
	return out
}

// valuesDigest names values without telling them: enough of a hash to tell two
// apart.
func valuesDigest(values map[string]any) string {
	b, err := json.Marshal(plain(values))
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:6])
}

// differing lists the paths at which values differ, and nothing of the values.
func differing(a, b map[string]any) []string {
	var out []string
	var walk func(path string, x, y any)
	walk = func(path string, x, y any) {
		mx, okx := x.(map[string]any)
		my, oky := y.(map[string]any)
		if okx && oky {
			keys := maps.Clone(mx)
			maps.Copy(keys, my)
			for _, k := range slices.Sorted(maps.Keys(keys)) {
				walk(strings.TrimPrefix(path+"."+k, "."), mx[k], my[k])
			}
			return
		}
		bx, _ := json.Marshal(x)
		by, _ := json.Marshal(y)
		if !bytes.Equal(bx, by) {
			out = append(out, path)
		}
	}
	walk("", plain(a), plain(b))
	return out
}

var secretRE = regexp.MustCompile(`(?i)pass|secret|token|key|cred|auth|cert|private|dsn|conn|hash|salt`)

// hide takes out of a text what it tells of values whose names sound secret:
// errors of templates and of API servers quote values.
func hide(text string, values map[string]any) string {
	var secrets []string
	var walk func(secret bool, v any)
	walk = func(secret bool, v any) {
		switch x := v.(type) {
		case map[string]any:
			for k, sub := range x {
				walk(secret || secretRE.MatchString(k), sub)
			}
		case []any:
			for _, sub := range x {
				walk(secret, sub)
			}
		case nil, bool:
		default:
			if s := fmt.Sprint(x); secret && len(s) >= 4 {
				secrets = append(secrets, s)
			}
		}
	}
	walk(false, values)
	// Longer ones first: one may be a part of another.
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) })
	for _, s := range secrets {
		text = strings.ReplaceAll(text, s, "[hidden]")
	}
	return text
}
