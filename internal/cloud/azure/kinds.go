package azure

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// The kinds of object as the ledger names them: service and type.
const (
	kindGroup       = "resources:group"
	kindVNet        = "network:vnet"
	kindSubnet      = "network:subnet"
	kindNSG         = "network:nsg"
	kindRule        = "network:nsg-rule"
	kindPublicIP    = "network:public-ip"
	kindNAT         = "network:nat-gateway"
	kindPeering     = "network:peering"
	kindDNSZone     = "dns:zone"
	kindPrivateZone = "dns:private-zone"
	kindZoneLink    = "dns:private-zone-link"
)

// An object is one of a job's objects: a name in a place, what the PUT says, and
// what is to be seen of it.
type object[T any] struct {
	p    *Provider
	r    *pipeline.Run
	kind string
	key  string
	id   string     // where it is, or shall be: IDs are made of names
	body func() any // what the PUT says

	// see is what of the object can drift; nil: nothing.
	see func(ctx context.Context, x resource[T]) ([]pipeline.Aspect, error)

	// owner says whose it is; nil: what the tag says.
	owner func(ctx context.Context, x resource[T]) (string, error)

	// inside names what a DELETE would take along although the job did not make
	// it; nil: nothing lies inside. blockers says who uses it.
	inside, blockers func(ctx context.Context, id string) ([]string, error)

	// expand is a query that makes a read show more.
	expand string

	// state says where it stands; nil: what provisioningState says.
	state func(x resource[T]) (pipeline.Status, string)

	// onlyIfNew: the service honours If-None-Match, so that a PUT can never
	// overwrite a namesake made since it was looked for.
	onlyIfNew bool
}

// resource is the protocol, the same for every kind. A PUT by name may be
// repeated: the name is the token. But it overwrites, so it is never sent
// before the name was looked for.
func (o object[T]) resource() pipeline.Resource {
	looked := false
	x := pipeline.Resource{Kind: o.kind, Key: o.key, Name: lastName(o.id), Args: o.id, Tokened: true, Slow: true, Get: o.get}
	x.Find = func(ctx context.Context) ([]pipeline.Seen, error) {
		looked = false
		s, err := o.get(ctx, o.id)
		if pipeline.Is(err, pipeline.NotFound) {
			looked = true
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		return []pipeline.Seen{s}, nil
	}
	x.Create = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		if !looked {
			found, err := x.Find(ctx)
			if err != nil {
				return pipeline.Seen{}, err
			}
			if len(found) > 0 {
				return found[0], o.mine(found[0])
			}
		}
		return o.create(ctx)
	}
	x.Delete = func(ctx context.Context, id string) error {
		if o.inside != nil {
			held, err := o.inside(ctx, id)
			if err != nil {
				return err
			}
			if len(held) > 0 {
				return &pipeline.CloudError{Class: pipeline.Busy, Service: o.kind, Op: "delete", Message: "it holds " + strings.Join(held, ", ")}
			}
		}
		op, err := o.p.remove(ctx, id)
		op.remember(o.r, id)
		return err
	}
	if o.inside != nil || o.blockers != nil {
		x.Blockers = o.whoBlocks
	}
	return x
}

// mine refuses somebody else's namesake.
func (o object[T]) mine(s pipeline.Seen) error {
	if s.Owner == o.r.Job.ID {
		return nil
	}
	return pipeline.Fatal("name-taken",
		fmt.Sprintf("%s %s exists already as %s and does not carry this job's mark, so it is somebody else's and was not touched", o.kind, lastName(o.id), s.ID),
		"Rename or remove it, or give the job another name, then retry.")
}

func (o object[T]) create(ctx context.Context) (pipeline.Seen, error) {
	header := http.Header{}
	if o.onlyIfNew {
		header.Set("If-None-Match", "*")
	}
	x, op, err := put[T](ctx, o.p, o.id, o.body(), header)
	if err != nil {
		return pipeline.Seen{}, err
	}
	op.remember(o.r, o.id)
	if x.ID == "" {
		return pipeline.Seen{ID: o.id, Status: pipeline.Pending, Reason: "accepted"}, nil
	}
	s, err := o.seen(ctx, o.id, x)
	if o.expand != "" && s.Status == pipeline.Ready {
		s.Status = pipeline.Pending // the answer shows less than a read
	}
	return s, err
}

// get reads the object, at most once a pass for all who ask.
func (o object[T]) get(ctx context.Context, id string) (pipeline.Seen, error) {
	x, err := read[T](ctx, o.p, id+o.expand)
	if err != nil {
		return pipeline.Seen{}, err
	}
	return o.seen(ctx, id, x)
}

// read reads a resource, at most once a pass for all who ask.
func read[T any](ctx context.Context, p *Provider, id string) (resource[T], error) {
	var x resource[T]
	doc, err := lookup.Once(ctx, strings.ToLower(id), func(ctx context.Context) (json.RawMessage, error) {
		var doc json.RawMessage
		err := p.get(ctx, id, &doc)
		return doc, err
	})
	if err != nil {
		return x, err
	}
	if err := json.Unmarshal(doc, &x); err != nil || x.ID == "" {
		return x, &pipeline.CloudError{Class: pipeline.Unavailable, Service: resourcesProvider, Op: "read", Message: id + ": the answer is no resource", Sent: true, Err: err}
	}
	return x, nil
}

// seen turns what the cloud says into what the protocol knows.
func (o object[T]) seen(ctx context.Context, id string, x resource[T]) (pipeline.Seen, error) {
	s := pipeline.Seen{ID: id, Owner: cmp.Or(x.Tags[job.MarkOwner], pipeline.Unmarked), Reason: x.Properties.ProvisioningState}
	var err error
	if o.owner != nil {
		if s.Owner, err = o.owner(ctx, x); err != nil {
			return s, err
		}
	}
	s.Status = statusOf(s.Reason)
	if o.state != nil {
		s.Status, s.Reason = o.state(x)
	}
	last := lastOperation(o.r, id)
	if s.Status == pipeline.Broken || last.removal && s.Status == pipeline.Ready {
		// Only the operation says why; and a removal that failed leaves its object
		// as if nothing had been.
		running, why, err := o.p.outcome(ctx, last)
		switch {
		case err != nil:
			return s, err
		case running && s.Status == pipeline.Broken:
			s.Status = pipeline.Pending
		case why == "" && s.Status == pipeline.Broken:
			why = "provisioningState " + s.Reason + "; the activity log of the resource group says why"
		}
		s.Reason = cmp.Or(why, s.Reason)
	}
	if s.Status == pipeline.Ready && o.see != nil && !o.r.Down {
		s.Aspects, err = o.see(ctx, x)
	}
	return s, err
}

// statusOf is the meaning of a provisioningState; kinds without one are there or
// are not.
func statusOf(state string) pipeline.Status {
	switch state {
	case "", "Succeeded":
		return pipeline.Ready
	case "Failed", "Canceled":
		return pipeline.Broken
	}
	return pipeline.Pending // Creating, Updating, Deleting, Accepted and what else there may be
}

func (o object[T]) whoBlocks(ctx context.Context, id string) (string, error) {
	var names []string
	for _, ask := range []func(context.Context, string) ([]string, error){o.inside, o.blockers} {
		if ask == nil {
			continue
		}
		found, err := ask(ctx, id)
		if err := pipeline.Unless(err, pipeline.NotFound); err != nil {
			return "", err
		}
		names = append(names, found...)
	}
	if len(names) == 0 {
		return "", nil
	}
	return "it is held by " + strings.Join(names, ", ") + "; remove or move what this job did not make, then retry", nil
}

// How often, and for how long, a change that does not take is sent again.
const (
	changesTolerated = 6
	changePatience   = 5 * time.Minute
)

// changed is what an aspect's Set answers once a change has been sent: the next
// pass reads whether it took. One that the cloud takes and does not keep stops
// the job after some tries.
func changed(r *pipeline.Run, what string) error {
	key := "changes of " + what
	n, _ := r.Recall(key).(int)
	if since := r.WaitedFor(key); n >= changesTolerated && since > changePatience {
		return pipeline.Fatal("change-lost", fmt.Sprintf("the cloud acknowledges a change of %s and does not keep it", what), "Look at it in the portal, then retry.")
	}
	r.Remember(key, n+1)
	return pipeline.Wait(settling, "%s to be changed", what)
}

// watched are aspects that a verify compares and a run leaves as they are: the
// cloud cannot change them in place, or a person may have had a reason.
func watched(r *pipeline.Run, aspects ...pipeline.Aspect) []pipeline.Aspect {
	if r.Mode != pipeline.Verify {
		return nil
	}
	return aspects
}
