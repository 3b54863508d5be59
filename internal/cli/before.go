package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/zopday/provisioner/internal/client"
)

// Beforehand is what has to exist at the simulated cloud before a job file
// runs: the content of <name>.sandbox.yaml beside <name>.yaml.
type beforehand struct {
	// Objects are calls of the cloud's own API, in order.
	Objects []placement `json:"objects"`
	// Set puts values into the job, as --set does: IDs that the calls gave.
	Set map[string]any `json:"set"`
	// Spaces are registered at the product before the job: clusters that exist.
	Spaces []json.RawMessage `json:"spaces"`
	// FeatureGates are what the server has to have on, such as AzureVMSS=true.
	FeatureGates string `json:"featureGates"`
}

// A placement is one call, or with After alone some simulated time.
type placement struct {
	Cloud     string         `json:"cloud"` // the job's, if left out
	Service   string         `json:"service"`
	Operation string         `json:"operation"`
	Region    string         `json:"region"` // the job's, if left out
	Params    map[string]any `json:"params"`
	// As keeps IDs of the answer under a name, found by how they begin; ${name}
	// stands for the ID from then on.
	As    map[string]string `json:"as"`
	After string            `json:"after"`
	// Account is another one than the simulation's own, as for the owner of a peer.
	Account string `json:"account"`
}

// sandboxFile is the file beside a job file that says what exists beforehand.
func sandboxFile(path string) string {
	for _, ext := range []string{".yaml", ".yml", ".json"} {
		if base, ok := strings.CutSuffix(path, ext); ok {
			return base + ".sandbox.yaml"
		}
	}
	return path + ".sandbox.yaml"
}

// readBeforehand reads it; a job file without one needs nothing.
func readBeforehand(path string) (beforehand, error) {
	var b beforehand
	raw, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return b, nil
	}
	if err != nil {
		return b, &usageError{msg: fmt.Sprintf("%s cannot be read: %v", path, pathless(err))}
	}
	if err := yaml.UnmarshalStrict(raw, &b); err != nil {
		return b, &usageError{msg: fmt.Sprintf("%s: %s", path, yamlProblem(err))}
	}
	return b, nil
}

// prepare makes what has to exist beforehand, and puts what it learned into
// the job.
func (b beforehand) prepare(s Simulation, d *document) error {
	known := map[string]string{}
	for i, o := range b.Objects {
		where := fmt.Sprintf("object %d (%s %s)", i+1, o.Service, o.Operation)
		if o.After != "" {
			wait, err := time.ParseDuration(o.After)
			if err != nil || wait < 0 || o.Operation != "" {
				return usagef("sandbox file, object %d: after is a duration such as 5m, on its own", i+1)
			}
			s.Step(wait)
			continue
		}
		params, err := fill(o.Params, known)
		if err != nil {
			return usagef("sandbox file, %s: %v", where, err)
		}
		region := cmp.Or(o.Region, d.text("region"))
		m, _ := params.(map[string]any)
		answer, err := s.Call(cmp.Or(o.Cloud, d.text("provider")), o.Service, o.Operation, o.Account, region, m)
		if err != nil {
			return usagef("sandbox file, %s: %v", where, err)
		}
		for name, pattern := range o.As {
			if known[name], err = pickID(answer, pattern); err != nil {
				return usagef("sandbox file, %s: %s: %v", where, pattern, err)
			}
		}
	}
	if len(b.Objects) > 0 {
		// What is fresh does not show at once, in the simulation as in the cloud.
		s.Step(time.Minute)
	}
	for _, k := range sortedKeys(b.Set) {
		v, err := fill(b.Set[k], known)
		if err != nil {
			return usagef("sandbox file, set %s: %v", k, err)
		}
		raw, err := json.Marshal(v)
		if err != nil {
			return err
		}
		if err := d.set(k + "=" + string(raw)); err != nil {
			return err
		}
	}
	return nil
}

// register makes the spaces known that the job needs.
func (b beforehand) register(ctx context.Context, c *client.Client) error {
	for i, sp := range b.Spaces {
		if _, _, err := c.RegisterSpace(ctx, sp); err != nil {
			return fmt.Errorf("sandbox file, space %d: %w", i+1, err)
		}
	}
	return nil
}

// fill puts known values in the place of ${name}.
func fill(in any, known map[string]string) (any, error) {
	switch v := in.(type) {
	case string:
		for strings.Contains(v, "${") {
			start := strings.Index(v, "${")
			length := strings.IndexByte(v[start:], '}')
			if length < 0 {
				return nil, fmt.Errorf("%q: a brace is not closed", v)
			}
			name := v[start+2 : start+length]
			value, ok := known[name]
			if !ok {
				return nil, fmt.Errorf("${%s} is not known at this point", name)
			}
			v = v[:start] + value + v[start+length+1:]
		}
		return v, nil
	case map[string]any:
		out := map[string]any{}
		for k, e := range v {
			f, err := fill(e, known)
			if err != nil {
				return nil, err
			}
			out[k] = f
		}
		return out, nil
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			f, err := fill(e, known)
			if err != nil {
				return nil, err
			}
			out[i] = f
		}
		return out, nil
	}
	return in, nil
}

// pickID finds an ID in an answer by how it begins: "vpc-" is the first such text
// in the answer, "i-#2" the second.
func pickID(answer json.RawMessage, pattern string) (string, error) {
	prefix, nth, numbered := strings.Cut(pattern, "#")
	want := 1
	if numbered {
		n, err := strconv.Atoi(nth)
		if err != nil || n < 1 {
			return "", fmt.Errorf("%q is no number", nth)
		}
		want = n
	}
	var seen []string
	dec := json.NewDecoder(bytes.NewReader(answer))
	for {
		t, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", err
		}
		if s, ok := t.(string); ok && prefix != "" && strings.HasPrefix(s, prefix) && len(s) > len(prefix) && !slices.Contains(seen, s) {
			seen = append(seen, s)
		}
	}
	if len(seen) < want {
		return "", fmt.Errorf("the answer has %s that begin so", plurals(len(seen), "text", "texts"))
	}
	return seen[want-1], nil
}
