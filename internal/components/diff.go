package components

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/kube"
	"github.com/zopday/provisioner/internal/pipeline"
)

// A Change is what an install or upgrade would do to one object.
type Change struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Action    string `json:"action" enum:"create,update,delete"`
	Diff      string `json:"diff" doc:"Unified, of the objects as YAML; what Secrets hold is masked"`
}

// Diff says what installing or upgrading a release would change, compared with
// what is installed. Templates are rendered as they would be then: with what the
// cluster serves, and with what they look up in it. Kinds that the chart brings
// outside of its templates, and hooks, are not among the changes.
func (e *Engine) Diff(ctx context.Context, access cloud.KubeAccess, spec job.ComponentSpec, kubeVersion string, p job.Provider) ([]Change, error) {
	x, err := e.Resolve(ctx, spec, kubeVersion, p)
	if err != nil {
		return nil, err
	}
	c, err := e.open(ctx, access, x.Place.Namespace)
	if err != nil {
		return nil, err
	}
	rec, err := c.record(ctx, x.Place)
	if err != nil {
		return nil, err
	}
	if x, err = e.keepFacts(ctx, spec, kubeVersion, p, x, rec); err != nil {
		return nil, err
	}
	opts := common.ReleaseOptions{Name: x.Place.Release, Namespace: x.Place.Namespace, Revision: 1, IsInstall: rec == nil, IsUpgrade: rec != nil}
	var was []*unstructured.Unstructured
	if rec != nil {
		opts.Revision = rec.last.Version + 1
		if was, err = objectsOf(rec, x.Place); err != nil {
			return nil, err
		}
	}
	var will []*unstructured.Unstructured
	err = e.rendered(ctx, func() error {
		will, err = c.rendered(ctx, x, opts)
		return err
	})
	if err != nil {
		return nil, err
	}
	return changes(was, will)
}

// keepFacts takes over from what is installed the values that came from the
// cluster, which a request leaves out.
func (e *Engine) keepFacts(ctx context.Context, spec job.ComponentSpec, kubeVersion string, p job.Provider, x *Resolved, rec *record) (*Resolved, error) {
	if rec == nil || len(x.Entry.FromCluster) == 0 {
		return x, nil
	}
	values := clone(x.values)
	for path := range x.Entry.FromCluster {
		keys := strings.Split(path, ".")
		if v, ok, err := unstructured.NestedString(rec.last.Config, keys...); ok && err == nil {
			values = mergeValues(nest(keys, v), values)
		}
	}
	var err error
	if spec.Values, err = json.Marshal(values); err != nil {
		return nil, err
	}
	return e.Resolve(ctx, spec, kubeVersion, p)
}

// rendered is what a component's templates become in a cluster.
func (c *cluster) rendered(ctx context.Context, x *Resolved, opts common.ReleaseOptions) ([]*unstructured.Unstructured, error) {
	caps, err := c.capabilities()
	if err != nil {
		return nil, err
	}
	ch, err := x.chart()
	if err != nil {
		return nil, err
	}
	top, err := coalesce(ch, clone(x.values), opts, caps)
	if err != nil {
		return nil, invalid("values", hide(err.Error(), x.values), "put them right")
	}
	r, err := render(ctx, ch, top, c.cfg)
	if err != nil {
		if transport(err) {
			return nil, kube.Classify("render", err)
		}
		return nil, invalid("values", "the chart's templates do not take them: "+hide(err.Error(), x.values), "put right what the message names")
	}
	return parseManifest(r.manifest, x.Place.Namespace)
}

func changes(was, will []*unstructured.Unstructured) ([]Change, error) {
	type pair struct{ old, now *unstructured.Unstructured }
	pairs := map[string]*pair{}
	key := func(o *unstructured.Unstructured) string {
		return o.GroupVersionKind().GroupKind().String() + " " + o.GetNamespace() + " " + o.GetName()
	}
	for _, o := range was {
		pairs[key(o)] = &pair{old: o}
	}
	for _, o := range will {
		if p := pairs[key(o)]; p != nil {
			p.now = o
		} else {
			pairs[key(o)] = &pair{now: o}
		}
	}
	var out []Change
	for _, p := range pairs {
		o := cmp.Or(p.now, p.old)
		ch := Change{Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName(), Action: "update"}
		switch {
		case p.old == nil:
			ch.Action = "create"
		case p.now == nil:
			ch.Action = "delete"
		}
		before, after, err := texts(p.old, p.now)
		if err != nil {
			return nil, pipeline.Fatal("diff", fmt.Sprintf("%s cannot be compared: %v", name(o), err), "Report this.")
		}
		if before == after {
			continue
		}
		ch.Diff = unified(before, after)
		out = append(out, ch)
	}
	slices.SortFunc(out, func(a, b Change) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out, nil
}

// texts are two states of an object as YAML, with what Secrets hold masked.
func texts(old, now *unstructured.Unstructured) (before, after string, err error) {
	o := cmp.Or(now, old)
	if o.GetKind() == "Secret" && o.GroupVersionKind().Group == "" {
		old, now = masked(old, now)
	}
	for _, t := range []struct {
		o  *unstructured.Unstructured
		to *string
	}{{old, &before}, {now, &after}} {
		if t.o == nil {
			continue
		}
		b, err := yaml.Marshal(t.o.Object)
		if err != nil {
			return "", "", err
		}
		*t.to = string(b)
	}
	return before, after, nil
}

// masked hides what two states of a Secret hold, and tells whether it differs.
func masked(old, now *unstructured.Unstructured) (a, b *unstructured.Unstructured) {
	value := func(o *unstructured.Unstructured, field, key string) any {
		if o == nil {
			return nil
		}
		data, _, _ := unstructured.NestedMap(o.Object, field)
		return data[key]
	}
	mask := func(o, other *unstructured.Unstructured, word string) *unstructured.Unstructured {
		if o == nil {
			return nil
		}
		out := o.DeepCopy()
		for _, field := range []string{"data", "stringData"} {
			data, _, err := unstructured.NestedMap(o.Object, field)
			if err != nil {
				out.Object[field] = "hidden" // no map, so no Secret: the API server will say so
				continue
			}
			for k, v := range data {
				shown := "hidden"
				if had := value(other, field, k); had != nil && !reflect.DeepEqual(had, v) {
					shown += ", " + word
				}
				data[k] = shown
			}
			if len(data) > 0 {
				out.Object[field] = data
			}
		}
		return out
	}
	return mask(old, now, "as it was"), mask(now, old, "as it will be")
}

// unified is a unified diff of two texts, with three lines of context.
func unified(before, after string) string {
	a, b := lines(before), lines(after)
	ops := edits(a, b)
	const around = 3
	var out strings.Builder
	for i := 0; i < len(ops); {
		if ops[i].kind == ' ' {
			i++
			continue
		}
		from := max(i-around, 0)
		to, calm := i, 0
		for to < len(ops) && calm <= 2*around {
			if ops[to].kind == ' ' {
				calm++
			} else {
				calm = 0
			}
			to++
		}
		to -= max(calm-around, 0)
		hunk := ops[from:to]
		var olds, news int
		for _, op := range hunk {
			if op.kind != '+' {
				olds++
			}
			if op.kind != '-' {
				news++
			}
		}
		fmt.Fprintf(&out, "@@ -%d,%d +%d,%d @@\n", hunk[0].a+1, olds, hunk[0].b+1, news)
		for _, op := range hunk {
			fmt.Fprintf(&out, "%c%s\n", op.kind, op.text)
		}
		i = to
	}
	return out.String()
}

func lines(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(s, "\n"), "\n")
}
