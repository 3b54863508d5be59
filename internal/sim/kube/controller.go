package kube

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// A controller is one of the cloud's, that acts on what the API server says has changed.
type controller struct {
	backend *backend
	changed chan struct{}
	// errors are what was last said of an object, by UID.
	errors map[string]string
}

func newController(b *backend) controller {
	return controller{backend: b, changed: make(chan struct{}, 1), errors: map[string]string{}}
}

// loop calls pass when something changed, and again soon while there is something left to do.
func (c *controller) loop(ctx context.Context, pass func(context.Context) (left bool)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.changed:
		}
		for pass(ctx) {
			if !sleep(ctx, retryEvery) {
				return
			}
		}
	}
}

// A subject is what an event is about.
type subject struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
}

// complain says what went wrong with an object as an Event, once. It returns whether there is
// something to do again.
func (c *controller) complain(ctx context.Context, api *client, s subject, reason string, err error) bool {
	if err == nil {
		delete(c.errors, s.UID)
		return false
	}
	// A conflict says that we saw an older version; the next is on its way.
	if ctx.Err() != nil || isCode(err, http.StatusConflict) || c.errors[s.UID] == err.Error() {
		return true
	}
	c.errors[s.UID] = err.Error()
	c.backend.kube.opt.Log.Warn("simulated Kubernetes", "kind", s.Kind, "namespace", s.Namespace, "name", s.Name, "reason", reason, "error", err)
	if s.Namespace == "" {
		s.Namespace = "default"
	}
	now := time.Now().UTC().Format(time.RFC3339)
	_ = api.call(ctx, http.MethodPost, namespacesPath+"/"+s.Namespace+"/events", map[string]any{
		"metadata":       map[string]any{"generateName": s.Name + "."},
		"involvedObject": s, "reason": reason, "message": err.Error(), "type": "Warning",
		"source":         map[string]string{"component": "cloud-controller"},
		"firstTimestamp": now, "lastTimestamp": now, "count": 1,
	}, nil)
	return true
}

// setFinalizer puts a finalizer on an object, or takes it off. The version guards the others that
// are on the list.
func setFinalizer(ctx context.Context, api *client, path string, m metadata, name string, on bool) error {
	if slices.Contains(m.Finalizers, name) == on {
		return nil
	}
	finalizers := slices.DeleteFunc(slices.Clone(m.Finalizers), func(f string) bool { return f == name })
	if on {
		finalizers = append(finalizers, name)
	}
	err := api.patch(ctx, path, map[string]any{"metadata": map[string]any{"finalizers": finalizers, "resourceVersion": m.ResourceVersion}})
	if isCode(err, http.StatusNotFound) {
		return nil
	}
	return err
}

// lines puts the parts of a key together.
func lines(parts ...any) string { return strings.TrimSpace(fmt.Sprintln(parts...)) }
