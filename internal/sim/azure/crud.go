package azure

import (
	"maps"
	"net/http"
	"strings"

	"github.com/zopday/provisioner/internal/sim"
)

const (
	lookupByID   = sim.ByID
	lookupByList = sim.ByList
)

// resource carries out a request for one resource or a collection of a kind.
func (c *Cloud) resource(r *request, k *kind) (answer, error) {
	if !r.id.item() {
		switch r.method {
		case http.MethodGet:
			if k.refresh != nil {
				k.refresh(r)
			}
			return c.list(r, k)
		default:
			return answer{}, methodNotAllowed(r)
		}
	}
	if k.service == "" {
		return answer{}, methodNotAllowed(r)
	}
	r.Touch(c.spelled(r.id.String()))
	if k.refresh != nil {
		k.refresh(r)
	}
	switch r.method {
	case http.MethodGet, http.MethodHead:
		return c.get(r, k)
	case http.MethodPut:
		return c.put(r, k)
	case http.MethodPatch:
		return c.patch(r, k)
	case http.MethodDelete:
		return c.delete(r, k)
	}
	return answer{}, methodNotAllowed(r)
}

func methodNotAllowed(r *request) *Error {
	return refuseARM(http.StatusMethodNotAllowed, "MethodNotAllowed", "The requested resource does not support http method '%s'.", r.method)
}

// enclosing checks that group and parent are there. Reads do not see a parent that they would not be shown.
func (c *Cloud) enclosing(r *request, k *kind) error {
	parent, nested := r.id.parent()
	if nested && k.service != "" {
		if c.find(parent.String()) == nil {
			return k.says.orphan(r, parent)
		}
		return nil
	}
	if r.id.Scope != "" {
		scope, ok := parseID(r.id.Scope)
		if ok && c.find(r.id.Scope) == nil {
			return notFoundARM(scope)
		}
	}
	if r.id.Group != "" && c.find(groupID(r.id.Subscription, r.id.Group)) == nil {
		return groupNotFound(r.id.Group)
	}
	return nil
}

func (c *Cloud) get(r *request, k *kind) (answer, error) {
	if err := c.enclosing(r, k); err != nil {
		return answer{}, err
	}
	res := c.find(r.id.String())
	if res == nil && k.computed != nil {
		res = k.computed(r.id.canonical(k))
	}
	if res == nil || !r.visible(res, false) {
		return answer{}, c.missing(r, k)
	}
	a := answer{status: http.StatusOK, header: http.Header{}, body: c.render(r, res)}
	if res.Etag != "" && !k.ownEtag {
		a.header.Set("Etag", res.Etag)
	}
	if r.method == http.MethodHead {
		a.status, a.body = http.StatusNoContent, nil
	}
	return a, nil
}

func (c *Cloud) missing(r *request, k *kind) *Error {
	switch {
	case k.missing != nil:
		return k.missing(r)
	case len(r.id.Types) > 1:
		return k.says.absent(r)
	}
	return notFoundARM(r.id)
}

// render is a resource as GET answers it.
func (c *Cloud) render(r *request, res *Resource) doc {
	k := c.kindOf(res.Type)
	body := doc{"id": res.ID, "name": res.Name, "type": res.Type}
	if res.Location != "" {
		body["location"] = res.Location
	}
	if len(res.Tags) > 0 {
		body["tags"] = res.Tags
	}
	if res.Etag != "" && !k.ownEtag {
		body["etag"] = res.Etag
	}
	maps.Copy(body, res.Top.clone())
	props := res.Properties.clone()
	if res.State != "" {
		props["provisioningState"] = res.State
	}
	body["properties"] = props
	if k.show != nil {
		k.show(r, res, body)
	}
	return body
}

func (c *Cloud) put(r *request, k *kind) (answer, error) {
	if err := c.writable(r, k); err != nil {
		return answer{}, err
	}
	if k.name != nil && !k.name.pattern.MatchString(r.id.name()) {
		return answer{}, k.says.badName(r, k.name)
	}
	if k.noBody && len(r.body) == 0 {
		r.body = []byte("{}")
	}
	body, err := r.input(k.says, k.modelOf(r.version, k.model))
	if err != nil {
		return answer{}, err
	}
	old := c.find(r.id.String())
	if old == nil && k.noCreate {
		return answer{}, methodNotAllowed(r)
	}
	now, err := c.intended(r, k, body, old)
	if err != nil {
		return answer{}, err
	}
	if err := c.conditions(r, k, old); err != nil {
		return answer{}, err
	}
	return c.store(r, k, now, old)
}

// store lets the kind complete what is to become of a resource, and keeps it.
func (c *Cloud) store(r *request, k *kind, now, old *Resource) (answer, error) {
	if k.guard != nil {
		if err := k.guard(r, now.ID); err != nil {
			return answer{}, err
		}
	}
	if err := c.beingDeleted(k, old); err != nil {
		return answer{}, err
	}
	undo := c.remember()
	if old == nil {
		now.Created = c.World.Now()
	}
	out, err := k.put(r, now, old)
	if err != nil {
		undo()
		return answer{}, err
	}
	now.Changed = c.World.Now()
	if !k.noEtag {
		now.Etag = k.newEtag(c)
		if old != nil && out.idle && sameJSON(tagDoc(now.Tags), tagDoc(old.Tags)) {
			now.Etag = old.Etag
		}
	}
	if !k.stateless {
		now.State = stateSucceeded
		if out.state != "" {
			now.State = out.state
		}
	}
	c.keep(now)
	c.index.put(now)
	if k.spread != nil {
		k.spread(now)
	}
	r.Make(now.ID)
	h := c.begin(r, now, "put", out)
	if out.status == 0 {
		out.status = http.StatusOK
		if old == nil {
			out.status = http.StatusCreated
		}
	}
	a := answer{status: out.status, header: h, body: out.body}
	if a.body == nil && !out.empty {
		a.body = c.render(r, now)
	}
	if k.etagOnPut {
		h.Set("Etag", now.Etag)
	}
	return a, nil
}

// conditions honours If-Match and If-None-Match.
func (c *Cloud) conditions(r *request, k *kind, old *Resource) error {
	if m := r.http.Get("If-Match"); m != "" {
		switch {
		case old == nil:
			return k.says.mismatch(&Resource{ID: r.id.String(), Name: r.id.name(), Type: k.typ}, m)
		case m != "*" && m != old.Etag && m != strings.Trim(old.Etag, `"`):
			return k.says.mismatch(old, m)
		}
	}
	if r.http.Get("If-None-Match") == "*" && old != nil {
		return k.says.taken(old)
	}
	return nil
}

// writable checks everything that stands before a write: registration, group, parent, locks.
func (c *Cloud) writable(r *request, k *kind) error {
	if !c.registered(r.id.Subscription, k.namespace()) {
		return refuseARM(http.StatusConflict, "MissingSubscriptionRegistration",
			"The subscription is not registered to use namespace '%s'. See https://aka.ms/rps-not-found for how to register subscriptions.", k.namespace())
	}
	if g := c.find(groupID(r.id.Subscription, r.id.Group)); g != nil && g.State == stateDeleting && r.method != http.MethodDelete {
		return refuseARM(http.StatusConflict, "ResourceGroupBeingDeleted",
			"The resource group '%s' is in deprovisioning state and cannot perform this operation.", g.Name)
	}
	if err := c.enclosing(r, k); err != nil {
		return err
	}
	return c.unlocked(r, r.id.String())
}

// beingDeleted refuses to write what is on its way out.
func (c *Cloud) beingDeleted(k *kind, old *Resource) error {
	if old == nil {
		return nil
	}
	op := c.shelves[k.service].state.Operations[old.Operation]
	if op == nil || op.Verb != "delete" {
		return nil
	}
	if k.service == "network" {
		return retryable("RetryableErrorDueToAnotherOperation",
			"Operation %s (%s) is updating resource %s. The call can be retried in 12 seconds.", op.Name, op.ID, old.ID).header("Retry-After", "12")
	}
	e := refuse(http.StatusConflict, "Conflict", "The resource '%s' is being deleted.", old.ID)
	e.Bare = k.bareErrors
	return e
}

func (c *Cloud) delete(r *request, k *kind) (answer, error) {
	if err := c.enclosing(r, k); err != nil {
		return answer{}, err
	}
	res := c.find(r.id.String())
	if res == nil {
		return answer{status: http.StatusNoContent, header: http.Header{}}, nil
	}
	if err := c.unlocked(r, res.ID); err != nil {
		return answer{}, err
	}
	if err := c.conditions(r, k, res); err != nil {
		return answer{}, err
	}
	if k.guard != nil {
		if err := k.guard(r, res.ID); err != nil {
			return answer{}, err
		}
	}
	out := outcome{status: http.StatusOK}
	if k.remove != nil {
		var err error
		if out, err = k.remove(r, res); err != nil {
			return answer{}, err
		}
	}
	r.Make(res.ID)
	body := out.body
	if out.takes == 0 && out.style == noHeader {
		c.drop(res)
	} else {
		if out.state != "" {
			res.State = out.state
		}
		out.takes += seconds(res.Hold)
	}
	h := c.begin(r, res, "delete", out)
	if out.takes == 0 && out.style != noHeader {
		c.drop(res)
	}
	return answer{status: out.status, header: h, body: body}, nil
}
