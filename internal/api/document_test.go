package api

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"

	"github.com/zopday/provisioner/internal/job"
)

// conform checks that an answer is what the OpenAPI document says of it.
func (r *rig) conform(method, path string, a answer) {
	r.t.Helper()
	doc := r.api.api.OpenAPI()
	item := doc.Paths[path]
	op := map[string]*huma.Operation{"GET": item.Get, "POST": item.Post, "PUT": item.Put, "PATCH": item.Patch, "DELETE": item.Delete}[method]
	resp := op.Responses[strconv.Itoa(a.status)]
	if resp == nil {
		r.t.Errorf("%s %s: the document has no status %d", method, path, a.status)
		return
	}
	if len(resp.Content) == 0 && len(a.body) == 0 {
		return
	}
	ct, _, _ := strings.Cut(a.header.Get("Content-Type"), ";")
	media := resp.Content[ct]
	if media == nil {
		r.t.Errorf("%s %s: the document has no %s for status %d", method, path, ct, a.status)
		return
	}
	var v any
	d := json.NewDecoder(bytes.NewReader(a.body))
	if err := d.Decode(&v); err != nil {
		r.t.Fatal(err)
	}
	res := &huma.ValidateResult{}
	huma.Validate(doc.Components.Schemas, media.Schema, huma.NewPathBuffer([]byte{}, 0), huma.ModeReadFromServer, v, res)
	for _, err := range res.Errors {
		r.t.Errorf("%s %s, status %d: %v", method, path, a.status, err)
	}
}

func TestAnswersAreAsTheDocumentSays(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	call := func(method, path, id, body string, header ...string) {
		t.Helper()
		r.conform(method, path, r.do(adminToken, method, strings.ReplaceAll(path, "{id}", id), body, append(header, "Accept", "application/json")...))
	}
	const jobs, one = "/provisioning-jobs", "/provisioning-jobs/{id}"
	call("POST", jobs, "", vmJob("shop", `"labels":{"a":"b"}`), "Idempotency-Key", "k")
	call("POST", jobs, "", vmJob("shop", `"labels":{"a":"b"}`), "Idempotency-Key", "k")
	call("POST", jobs, "", vmJob("shop"))
	call("POST", jobs, "", "{")
	call("POST", jobs, "", `{"name":1}`)
	call("POST", jobs, "", strings.Repeat(" ", 2<<20)+"{}")
	call("GET", jobs, "", "")
	v := r.create(strings.Replace(withLB, `"shop"`, `"shop-lb"`, 1))
	full(r, v.ID)
	for _, sub := range []string{"", "/receipt", "/explain", "/events", "/plan"} {
		call("GET", one+sub, v.ID, "")
		call("GET", one+sub, "job_none", "")
	}
	call("POST", one+"/verify", v.ID, "")
	call("POST", one+"/retry", v.ID, "")
	call("PATCH", one, v.ID, `{"vmOp":"explode"}`)
	call("PATCH", one, v.ID, `{"config":{"spec":{"loadBalancer":{"healthCheck":{"path":"/x"}}}}}`, "If-Match", `"9"`)
	call("PATCH", one, v.ID, `{"config":{"spec":{"loadBalancer":{"healthCheck":{"path":"/x"}}}}}`)
	call("DELETE", one, v.ID, "")
	draft := r.create(vmJob("draft"))
	call("DELETE", one, draft.ID, "")
	call("GET", "/audit-logs", "", "")
	call("GET", "/audit-logs/verify", "", "")
	call("GET", "/healthz", "", "")
	call("GET", "/readyz", "", "")
	call("GET", "/version", "", "")
}

// full leaves a finished job with something in every field.
func full(r *rig, id string) {
	r.park(id)
	r.set(id, func(j *job.Job) {
		at := j.CreatedAt
		j.Status, j.Outputs, j.CurrentStep = job.Completed, map[string]string{"url": "http://x/"}, "stepFinalize"
		c := &j.Config.InfraConfig
		c.Account, c.Zones, c.LoadBalancerID, c.ObservedAt, c.Warnings = "1", []string{"a"}, "arn", &at, []string{"w"}
		c.VMs = []job.VMInfo{{Name: "vm-1", InstanceID: "i-1", State: job.VMReady, SentinelSeenAt: &at, LaunchedAt: &at, ExecMode: job.ExecSSM}}
		c.Targets = []job.TargetInfo{{InstanceID: "i-1", Health: "healthy"}}
		c.Report = []job.Control{{ID: "VMA-01", Name: "n", Wanted: "w", Seen: "s", Met: true}}
	})
}
