package api

import (
	"context"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/provision"
)

// JobID is the path parameter of everything about one job.
type JobID struct {
	ID string `path:"id" doc:"The job's ID or its name; where nothing changes, also the beginning of its ID"`
}

// IfMatch is the optional expectation of a change.
type IfMatch struct {
	IfMatch string `header:"If-Match" doc:"The ETag of the job as you read it; the change is refused with 412 if the spec was changed since"`
}

// match reads an If-Match header. A weak or unreadable one matches nothing.
func (h IfMatch) match() provision.Match {
	v := strings.TrimSpace(h.IfMatch)
	if v == "" || v == "*" {
		return nil
	}
	n, err := strconv.ParseInt(strings.Trim(v, `"`), 10, 64)
	if err != nil || !strings.HasPrefix(v, `"`) || !strings.HasSuffix(v, `"`) {
		n = -1
	}
	return &n
}

// jobOut is one job with its ETag.
type jobOut struct {
	Status   int
	ETag     string `header:"ETag" doc:"The spec's revision, for If-Match"`
	Location string `header:"Location" doc:"Where the job is found"`
	Body     Data[*provision.JobView]
}

func jobAnswer(status int, v *provision.JobView, warnings []string) *jobOut {
	out := &jobOut{Status: status, ETag: etag(v), Body: Data[*provision.JobView]{Data: v}}
	if len(warnings) > 0 {
		out.Body.Meta = &Meta{Warnings: warnings}
	}
	return out
}

func etag(v *provision.JobView) string { return `"` + strconv.FormatInt(v.SpecRevision, 10) + `"` }

func location(v *provision.JobView) string { return "/provisioning-jobs/" + v.ID }

const tagJobs = "Jobs"

// createIn is a request that makes a job.
type createIn struct {
	Key     string `header:"Idempotency-Key" doc:"1 to 255 printable characters. The same key with the same body gives the same job for 24 hours; with another body it is refused"`
	RawBody []byte `contentType:"application/json"`
}

func (s *server) jobRoutes() {
	route(s, huma.Operation{
		OperationID: "create-job", Method: http.MethodPost, Path: "/provisioning-jobs", Tags: []string{tagJobs}, DefaultStatus: http.StatusCreated,
		Summary:     "Create a job",
		Description: "A draft, or queued at once with submit. Answers 201 for a new job and 200 for one that the idempotency key stands for already.",
		Errors:      []int{409, 413, 415, 422},
	}, []access.Policy{access.JobCreate, access.ComponentInstall, access.VMOperate}, func(ctx context.Context, in *createIn) (*jobOut, error) {
		var r provision.CreateRequest
		if err := s.decode(ctx, access.JobCreate, "", in.RawBody, &r); err != nil {
			return nil, err
		}
		v, created, err := s.Service.Create(ctx, r, in.Key)
		if err != nil {
			return nil, err
		}
		out := jobAnswer(http.StatusOK, v, nil)
		if created {
			out.Status = http.StatusCreated
		}
		out.Location = location(v)
		return out, nil
	})
	bodyOf[provision.CreateRequest](s, "/provisioning-jobs", http.MethodPost)
	s.installRoute()

	route(s, huma.Operation{
		OperationID: "get-job", Method: http.MethodGet, Path: "/provisioning-jobs/{id}", Tags: []string{tagJobs},
		Summary: "Get a job", Description: "With the steps of its present run, pending ones included, and what it waits for.", Errors: []int{404, 409},
	}, []access.Policy{access.JobView}, func(ctx context.Context, in *JobID) (*jobOut, error) {
		v, err := s.Service.Get(ctx, in.ID)
		if err != nil {
			return nil, err
		}
		return jobAnswer(http.StatusOK, v, nil), nil
	})
	s.changeRoutes()
	s.endRoutes()
}

func (s *server) installRoute() {
	route(s, huma.Operation{
		OperationID: "install-component", Method: http.MethodPost, Path: "/provisioning-jobs/install-component", Tags: []string{tagComponents}, DefaultStatus: http.StatusCreated,
		Summary:     "Install a component onto a space",
		Description: "Makes a component job and queues it. PATCH with componentOp upgrades it and rolls it back; DELETE uninstalls it.",
		Errors:      []int{404, 409, 413, 415, 422, 503},
	}, []access.Policy{access.ComponentInstall}, func(ctx context.Context, in *createIn) (*jobOut, error) {
		var r provision.InstallRequest
		if err := s.decode(ctx, access.ComponentInstall, "", in.RawBody, &r); err != nil {
			return nil, err
		}
		v, created, err := s.Service.InstallComponent(ctx, r, in.Key)
		if err != nil {
			return nil, err
		}
		out := jobAnswer(http.StatusOK, v, nil)
		if created {
			out.Status = http.StatusCreated
		}
		out.Location = location(v)
		return out, nil
	})
	bodyOf[provision.InstallRequest](s, "/provisioning-jobs/install-component", http.MethodPost)
}

func (s *server) changeRoutes() {
	type patchIn struct {
		JobID
		IfMatch
		RawBody []byte `contentType:"application/json"`
	}
	route(s, huma.Operation{
		OperationID: "patch-job", Method: http.MethodPatch, Path: "/provisioning-jobs/{id}", Tags: []string{tagJobs},
		Summary: "Change a job: submit it, edit it, attach or detach a load balancer, upgrade or roll back a component",
		Description: `{"status":"queued"} submits a draft. {"vmOp":"attach_lb"} and {"vmOp":"detach_lb"} work on a finished VM job; {"componentOp":"upgrade"}, with config.spec.component, and {"componentOp":"rollback"} on a finished component job. ` +
			"config.spec is a JSON Merge Patch: any field of a draft, the fields of a failed job that no finished step used, the load balancer's health check of a finished one. " +
			"What the server did and you may not have meant is in meta.warnings.",
		Errors: []int{404, 409, 412, 413, 415, 422},
	}, []access.Policy{access.JobUpdate, access.VMOperate, access.ComponentInstall}, func(ctx context.Context, in *patchIn) (*jobOut, error) {
		var r provision.PatchRequest
		if err := s.decode(ctx, access.JobUpdate, in.ID, in.RawBody, &r); err != nil {
			return nil, err
		}
		v, warnings, err := s.Service.Patch(ctx, in.ID, r, in.match())
		if err != nil {
			return nil, err
		}
		return jobAnswer(http.StatusOK, v, warnings), nil
	})
	bodyOf[provision.PatchRequest](s, "/provisioning-jobs/{id}", http.MethodPatch)
}

func (s *server) endRoutes() {
	type deleteIn struct {
		JobID
		IfMatch
		Confirm string `query:"confirm" doc:"The job's name. Needed where a deletion protection that the job set is lifted: a VM job with a load balancer, a cluster"`
	}
	route(s, huma.Operation{
		OperationID: "delete-job", Method: http.MethodDelete, Path: "/provisioning-jobs/{id}", Tags: []string{tagJobs}, DefaultStatus: http.StatusAccepted,
		Summary: "Cancel a job and clean up what it made",
		Description: "A job that never started is cancelled at once (200). Any other goes through a teardown (202) and ends cancelled only when nothing that it made is left. " +
			"An adopt job only forgets what it points at.",
		Errors: []int{404, 409, 412},
	}, []access.Policy{access.JobDelete, access.ComponentUninstall}, func(ctx context.Context, in *deleteIn) (*jobOut, error) {
		v, done, err := s.Service.Delete(ctx, in.ID, in.Confirm, in.match())
		if err != nil {
			return nil, err
		}
		status := http.StatusAccepted
		if done {
			status = http.StatusOK
		}
		return jobAnswer(status, v, nil), nil
	})

	route(s, huma.Operation{
		OperationID: "retry-job", Method: http.MethodPost, Path: "/provisioning-jobs/{id}/retry", Tags: []string{tagJobs}, DefaultStatus: http.StatusAccepted,
		Summary:     "Retry a failed job",
		Description: "It goes on at the first step that is not done; a teardown that failed goes on as a teardown.",
		Errors:      []int{404, 409},
	}, []access.Policy{access.JobRetry}, func(ctx context.Context, in *JobID) (*jobOut, error) {
		v, err := s.Service.Retry(ctx, in.ID)
		if err != nil {
			return nil, err
		}
		return jobAnswer(http.StatusAccepted, v, nil), nil
	})
}

// decode reads a body; one that makes no sense is a refused change.
func (s *server) decode(ctx context.Context, policy access.Policy, resource string, body []byte, into any) error {
	if err := provision.Decode(body, into); err != nil {
		return s.Service.Refuse(ctx, policy, resource, err)
	}
	return nil
}

// bodyOf puts the schema of a request into the OpenAPI document. The body itself
// is read by provision.Decode and not by Huma, whose messages do not say how to
// put a field right.
func bodyOf[T any](s *server, path, method string) {
	doc := s.api.OpenAPI()
	item := doc.Paths[path]
	op := map[string]*huma.Operation{http.MethodPost: item.Post, http.MethodPatch: item.Patch, http.MethodPut: item.Put}[method]
	t := reflect.TypeFor[T]()
	op.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
		"application/json": {Schema: doc.Components.Schemas.Schema(t, true, t.Name())},
	}}
}
