package api

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/ledger"
	"github.com/zopday/provisioner/internal/provision"
)

// listIn is the query of the list of jobs.
type listIn struct {
	Status       []string  `query:"status,explode" enum:"draft,queued,running,completed,failed,cancelled" doc:"One state or more"`
	Phase        string    `query:"phase" enum:"provision,update,teardown" doc:"What the job does or did last"`
	Kind         string    `query:"kind" enum:"provisioning,remediation"`
	ResourceType string    `query:"resourceType" enum:"cluster,datastore,cache,network,vm,component" doc:"The resource family"`
	Provider     string    `query:"provider" enum:"aws,gcp,azure"`
	Mode         string    `query:"mode" enum:"create,create_in_existing,adopt"`
	SubjectType  string    `query:"subjectType" doc:"Such as vm_pool"`
	SubjectID    string    `query:"subjectId" maxLength:"100"`
	Name         string    `query:"name" maxLength:"100" doc:"Part of the name, in any case"`
	Label        []string  `query:"label,explode" doc:"A label as key=value; repeat it for more, all of which have to be there"`
	CreatedFrom  time.Time `query:"createdFrom" doc:"RFC 3339; included"`
	CreatedTo    time.Time `query:"createdTo" doc:"RFC 3339; not included"`
	Sort         string    `query:"sort" enum:"createdAt,-createdAt,updatedAt,-updatedAt,name,-name" default:"-createdAt" doc:"A minus sorts downwards"`
	Limit        int       `query:"limit" minimum:"1" maximum:"500" default:"50" doc:"Jobs a page"`
	Cursor       string    `query:"cursor" maxLength:"1000" doc:"nextCursor of the page before"`
}

func (in *listIn) query() (provision.ListQuery, error) {
	q := provision.ListQuery{SubjectType: in.SubjectType, Filter: ledger.Filter{
		Phase: job.Phase(in.Phase), Kind: job.Kind(in.Kind), ResourceType: job.ResourceType(in.ResourceType),
		Provider: job.Provider(in.Provider), Mode: job.Mode(in.Mode), Subject: in.SubjectID, Name: in.Name,
		CreatedFrom: in.CreatedFrom, CreatedTo: in.CreatedTo, Limit: in.Limit, Cursor: in.Cursor,
	}}
	for _, s := range in.Status {
		q.Status = append(q.Status, job.Status(s))
	}
	key, down := strings.CutPrefix(in.Sort, "-")
	q.Sort, q.Order = ledger.SortKey(key), ledger.Asc
	if down {
		q.Order = ledger.Desc
	}
	for _, l := range in.Label {
		k, v, ok := strings.Cut(l, "=")
		if !ok || k == "" {
			return q, badField("label", "is not of the form key=value", "use label=team=shop to ask for the label team with the value shop")
		}
		if q.Labels == nil {
			q.Labels = map[string]string{}
		}
		if other, twice := q.Labels[k]; twice && other != v {
			return q, badField("label", fmt.Sprintf("asks for two values of %.40q", k), "a job has one value a label")
		}
		q.Labels[k] = v
	}
	return q, plainText(append([]string{in.SubjectType, in.SubjectID, in.Name, in.Cursor}, in.Label...)...)
}

// plainText refuses what PostgreSQL cannot even be asked for.
func plainText(values ...string) error {
	for _, v := range values {
		if !utf8.ValidString(v) || strings.ContainsRune(v, 0) {
			return badField("query", "holds something that is not text", "use UTF-8 without NUL")
		}
	}
	return nil
}

func badField(field, message, fix string) error {
	return &provision.Refusal{Kind: provision.Invalid, Message: field + ": " + message, Hint: fix, Fields: []job.FieldError{{Field: field, Message: message, Fix: fix}}}
}

// get registers a look at one job.
func get[T any](s *server, op huma.Operation, fn func(context.Context, string) (T, error)) {
	type out struct{ Body Data[T] }
	op.Method, op.Tags = cmp.Or(op.Method, http.MethodGet), []string{tagJobs}
	op.Errors = append(op.Errors, 404, 409)
	route(s, op, []access.Policy{access.JobView}, func(ctx context.Context, in *JobID) (*out, error) {
		v, err := fn(ctx, in.ID)
		if err != nil {
			return nil, err
		}
		return &out{Data[T]{Data: v}}, nil
	})
}

func (s *server) readRoutes() {
	type listOut struct {
		Body List[provision.JobSummary]
	}
	route(s, huma.Operation{
		OperationID: "list-jobs", Method: http.MethodGet, Path: "/provisioning-jobs", Tags: []string{tagJobs},
		Summary: "List jobs", Description: "Filters combine; the cursor of a page is good for the same filters and sorting.", Errors: []int{422},
	}, []access.Policy{access.JobView}, func(ctx context.Context, in *listIn) (*listOut, error) {
		q, err := in.query()
		if err != nil {
			return nil, err
		}
		items, next, err := s.Service.List(ctx, q)
		if err != nil {
			return nil, err
		}
		return &listOut{listOf(items, next)}, nil
	})

	get(s, huma.Operation{
		OperationID: "plan-job", Path: "/provisioning-jobs/{id}/plan", Summary: "Plan a saved job",
		Description: "Its steps, the objects under the names that they will have, checks run now, what a teardown takes, and the cost with its arithmetic. Nothing is changed.",
		Errors:      []int{503},
	}, s.Service.Plan)
	get(s, huma.Operation{
		OperationID: "verify-job", Method: http.MethodPost, Path: "/provisioning-jobs/{id}/verify", Summary: "Compare a job with the cloud",
		Description: "\"As asked\", or the drift attribute by attribute. It goes through clients that refuse to change anything.",
		Errors:      []int{503},
	}, s.Service.Verify)
	get(s, huma.Operation{
		OperationID: "get-receipt", Path: "/provisioning-jobs/{id}/receipt", Summary: "Get a job's receipt",
		Description: "What was made, what is gone, what was kept and why, and what a look through the account by owner mark found.",
	}, s.Service.Receipt)
	get(s, huma.Operation{
		OperationID: "explain-job", Path: "/provisioning-jobs/{id}/explain", Summary: "Explain why a job is where it is",
		Description: "Verdict, failed step, all attempts, the last 20 lines of the history, what exists, who holds the job, and what can be done now, in one answer.",
	}, s.Service.Explain)

	type planIn struct {
		RawBody []byte `contentType:"application/json"`
	}
	type planOut struct {
		Body Data[*provision.PlanView]
	}
	route(s, huma.Operation{
		OperationID: "plan-request", Method: http.MethodPost, Path: "/provisioning-jobs/plan", Tags: []string{tagJobs},
		Summary: "Plan a request without saving it", Description: "The body is that of a create. Nothing is saved or changed.", Errors: []int{413, 415, 422, 503},
	}, []access.Policy{access.JobCreate}, func(ctx context.Context, in *planIn) (*planOut, error) {
		var r provision.CreateRequest
		if err := provision.Decode(in.RawBody, &r); err != nil {
			return nil, err
		}
		v, err := s.Service.PlanRequest(ctx, r)
		if err != nil {
			return nil, err
		}
		return &planOut{Data[*provision.PlanView]{Data: v}}, nil
	})
	bodyOf[provision.CreateRequest](s, "/provisioning-jobs/plan", http.MethodPost)
}
