package azure

import (
	"net/http"
	"regexp"
	"strings"
	"time"
)

// A kind is a resource type: how resources of it are checked, made, shown and removed. The functions are called with the
// world locked; those that are nil have the meaning of their comment.
type kind struct {
	// typ is the type as the provider spells it: "Microsoft.Network/virtualNetworks/subnets".
	typ string
	// service is the shelf that the resources are on.
	service string
	// title is the noun in operation names: "VirtualNetworks". Empty: the last segment of the type, capitalised.
	title string
	// versions are the api-versions that are accepted, oldest first.
	versions []string
	// model makes the SDK's type of the request body: what does not fit it is refused. tagModel is that of PATCH.
	model, patchModel func() any
	// tracked kinds have a location and tags. global ones are in the location "global".
	tracked, global bool
	// extension kinds are attached to any scope: locks, role assignments.
	extension bool
	// stateless kinds have no provisioningState; untagged ones no etag.
	stateless, noEtag bool
	// name is what a name has to look like, and what the refusal says.
	name *nameRule
	// says is how the provider words refusals; nil means as ARM does.
	says *dialect

	// put checks what a PUT (or a merging PATCH) asks for and completes it. old is nil for a new resource; now has the
	// body's properties, location and tags.
	put func(r *request, now, old *Resource) (outcome, error)
	// patch carries out a PATCH with the given body; nil sets tags and answers at once. mergePatch: a PATCH is a PUT with
	// the body merged into what there is.
	patch      func(r *request, res *Resource, body doc) (answer, error)
	mergePatch bool
	// remove checks whether a resource may go; nil lets it go at once with 200.
	remove func(r *request, res *Resource) (outcome, error)
	// settled is told when a put has succeeded, removed when a resource is gone, for whatever reason.
	settled func(op *Operation, res *Resource)
	removed func(res *Resource)
	// finishDelete may keep a resource whose delete was to end now; it answers false then.
	finishDelete func(op *Operation, res *Resource) bool
	// show completes what a GET answers.
	show func(r *request, res *Resource, body doc)
	// guard refuses any write while something else is going on.
	guard func(r *request, id string) error
	// actions are POSTs below a resource, by lower-case name; views are GETs below it.
	actions, views map[string]func(r *request, res *Resource) (answer, error)
	// reads are the actions that change nothing.
	reads []string
	// polling says what the URLs of operations look like; nil: as Microsoft.Network's.
	polling func(op *Operation) (async, result string)
	// retryPoll is the Retry-After of polls in seconds, 0 for the operation's own; stamped status documents carry name and times.
	retryPoll int
	stamped   bool
	// deleted is the status at the Location of a finished delete; 0 means 204.
	deleted int
	// missing words a GET of something that is not there; nil: ARM's own refusal for top-level resources, the dialect's
	// for nested ones.
	missing func(r *request) *Error
	// zonal kinds can be put into availability zones.
	zonal bool
	// bareErrors: refusals have no `error` around them.
	bareErrors bool
	// computed finds resources that are on no shelf: records that machines register themselves.
	computed func(id string) *Resource
	// poll202: status documents of unfinished operations come with 202 and the operation's headers.
	poll202 bool
	// etag makes etags; nil: weak ones, W/"…". spread is told of a new etag.
	etag func(c *Cloud) string
	// etagOnPut: answers to PUTs carry it as a header, too.
	etagOnPut bool
	spread    func(res *Resource)
	// ownEtag: etags are no header and no member "etag": show puts them where the provider does.
	ownEtag bool
	// modelled says whether bodies of an api-version are held against the model; nil: those of all.
	modelled func(version string) bool
	// outlives: a resource of an extension kind stays behind, unseen, when what it is attached to goes.
	outlives bool
	// listed: a nested kind that is in ARM's list of resources all the same.
	listed bool
	// noCreate: it exists by itself only.
	noCreate bool
	// noBody: a PUT may come without a body.
	noBody bool
	// pollBody completes the status documents of operations and their headers; retryAlways: those of finished ones carry the Retry-After, too.
	pollBody    func(r *request, op *Operation, h http.Header, body map[string]any)
	retryAlways bool
	// refresh is called before a request is served, for what changes without requests.
	refresh func(r *request)
}

// A nameRule says what names look like.
type nameRule struct {
	pattern *regexp.Regexp
	text    string
}

func (k *kind) namespace() string { ns, _, _ := strings.Cut(k.typ, "/"); return ns }

// shortType is the type without its namespace.
func (k *kind) shortType() string { _, t, _ := strings.Cut(k.typ, "/"); return t }

// modelOf is the model that bodies of an api-version have to fit, or nil.
func (k *kind) modelOf(version string, model func() any) func() any {
	if k.modelled != nil && !k.modelled(version) {
		return nil
	}
	return model
}

func (k *kind) pollAfter(op *Operation) int {
	if k.retryPoll > 0 {
		return k.retryPoll
	}
	return op.RetryAfter
}

func (k *kind) deletedStatus() int {
	if k.deleted == 0 {
		return http.StatusNoContent
	}
	return k.deleted
}

// addKind registers a resource type.
func (c *Cloud) addKind(k *kind) {
	if k.title == "" {
		last := lastOf(k.typ)
		k.title = strings.ToUpper(last[:1]) + last[1:]
	}
	if k.says == nil {
		k.says = armDialect
	}
	c.kinds[strings.ToLower(k.typ)] = k
}

func (c *Cloud) kindOf(typ string) *kind { return c.kinds[strings.ToLower(typ)] }

// A dialect is how a provider words what all of them refuse.
type dialect struct {
	// absent is a GET of a nested resource that is not there.
	absent func(r *request) *Error
	// orphan is a request below a resource that is not there.
	orphan func(r *request, parent armID) *Error
	// mismatch is an If-Match that does not fit, taken an If-None-Match: * that finds something.
	mismatch func(res *Resource, given string) *Error
	taken    func(res *Resource) *Error
	// badBody is a body that does not fit the model.
	badBody func(p bodyProblem) *Error
	badName func(r *request, rule *nameRule) *Error
}

var armDialect = &dialect{
	absent: func(r *request) *Error { return notFoundARM(r.id) },
	orphan: func(_ *request, parent armID) *Error { return parentNotFound(parent) },
	mismatch: func(res *Resource, given string) *Error {
		return refuse(http.StatusPreconditionFailed, "PreconditionFailed", "The condition '%s' in the If-Match header was not satisfied. The current etag is '%s'.", given, res.Etag)
	},
	taken: func(res *Resource) *Error {
		return refuse(http.StatusPreconditionFailed, "PreconditionFailed", "The resource '%s' exists already.", res.ID)
	},
	badBody: func(p bodyProblem) *Error {
		return refuseARM(http.StatusBadRequest, "InvalidRequestContent", "The request content was invalid and could not be deserialized: '%s'.", p.text)
	},
	badName: func(r *request, rule *nameRule) *Error {
		return refuseARM(http.StatusBadRequest, "InvalidResourceName", "The resource name '%s' is invalid. %s", r.id.name(), rule.text)
	},
}

// notFoundARM is ARM's own refusal of a GET.
func notFoundARM(id armID) *Error {
	name := strings.Join(id.Names, "/")
	where := "under resource group '" + id.Group + "' "
	if id.Group == "" {
		where = "under resource group '<null>' "
	}
	return refuseARM(http.StatusNotFound, "ResourceNotFound",
		"The Resource '%s/%s' %swas not found. For more details please go to https://aka.ms/ARMResourceNotFoundFix", id.typ(), name, where)
}

func parentNotFound(parent armID) *Error {
	return refuseARM(http.StatusNotFound, "ParentResourceNotFound",
		"Can not perform requested operation on nested resource. Parent resource '%s' not found.", strings.Join(parent.Names, "/"))
}

func groupNotFound(group string) *Error {
	return refuseARM(http.StatusNotFound, "ResourceGroupNotFound", "Resource group '%s' could not be found.", group)
}

// visible says whether a read sees a resource now.
func (r *request) visible(res *Resource, list bool) bool {
	by, since := lookupByID, res.Created
	if list {
		by = lookupByList
	}
	return r.cloud.World.Visible(r.Call, res.ID, since, by, faultText(res))
}

// faultText names a resource for the faults that hide things.
func faultText(res *Resource) string {
	var b strings.Builder
	b.WriteString(res.Name + " " + res.Type + " " + lastOf(res.Type))
	for _, k := range sortedKeys(res.Tags) {
		b.WriteString(" " + res.Tags[k])
	}
	return b.String()
}

// pace is how long something takes: between from and to, the same for the same seed and name.
func (c *Cloud) pace(from, to time.Duration, name string) time.Duration {
	return (from + time.Duration(c.World.Fraction("pace", name)*float64(to-from))).Truncate(time.Millisecond)
}
