package api

import (
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/pgtest"
)

// A named is what an ID or a name names.
type named string

// pathKinds are the kinds of the parameters of paths, by the part of the path before
// them; "" is no organisation's.
var pathKinds = map[string]named{
	"provisioning-jobs": "job", "databases": "database", "connections": "connection", "spaces": "space", "schedules": "schedule",
	"tokens": "token", "roles": "role", "users": "user", "assignments": "assignment", "teams": "team", "cloud-accounts": "account", "webhooks": "webhook", "deliveries": "delivery",
	"components": "", "clusters": "", "{region}": "",
}

// queryKinds are the kinds of query parameters; "" is no organisation's. A new one has
// to be written here.
var queryKinds = map[string]named{
	"jobId": "job", "subjectId": "subject", "resourceId": "job", "resource": "job", "scopeId": "team", "role": "role", "subject": "token",
	"requestId": "request", "actor": "actor", "name": "job", "scope": "team", "cursor": "cursor", "team": "team", "teamId": "team", "cloudAccountId": "account",
	"label": "", "limit": "", "subjectKind": "", "scopeKind": "", "action": "", "resourceType": "", "outcome": "", "from": "", "to": "", "format": "",
	"status": "", "phase": "", "kind": "", "provider": "", "mode": "", "subjectType": "", "createdFrom": "", "createdTo": "", "sort": "", "confirm": "",
	"search": "", "category": "", "kubeVersion": "", "resourceGroup": "", "principal": "", "after": "", "dryRun": "", "family": "", "code": "", "state": "", "error": "",
	"issuer": "", "next": "",
}

// needed are the query parameters that an operation does not work without.
var needed = map[string]string{
	"GET /effective-permissions":                                  "subject=token:own-token",
	"GET /catalog/policies":                                       "provider=aws",
	"DELETE /cloud-accounts/{id}/clusters/{region}/{name}/access": "provider=aws",
}

// bodies are what is sent to operations that take a body: the first one stands beside
// the IDs of a path, and where {kind} is in one, it is filled in. A new operation has
// to be written here.
var bodies = map[string][]string{
	"POST /provisioning-jobs": {
		`{"resourceType":"vm","provider":"aws","mode":"create","name":"own-new","region":"us-east-1","cloudAccountId":"{account}","config":{"spec":{}}}`,
		`{"resourceType":"vm","provider":"aws","mode":"create","name":"own-new","region":"us-east-1","team":"{team}","config":{"spec":{}}}`,
		`{"resourceType":"vm","provider":"aws","mode":"create","name":"{job:name}","region":"us-east-1","config":{"spec":{}}}`,
		`{"kind":"remediation","config":{"spec":{"action":"pause","jobId":"{job}"}}}`,
		`{"kind":"remediation","subjectId":"{subject}","config":{"spec":{"action":"pause"}}}`,
		`{"resourceType":"component","config":{"spec":{"spaceId":"{space}","component":{"name":"loki"}}}}`,
		`{"resourceType":"network","provider":"aws","mode":"create","name":"own-net","region":"us-east-1","config":{"spec":{"peerings":[{"networkId":"vpc-1","cloudAccountId":"{account}"}]}}}`,
	},
	"POST /provisioning-jobs/plan": {
		`{"resourceType":"vm","provider":"aws","mode":"create","name":"own-new","region":"us-east-1","cloudAccountId":"{account}","config":{"spec":{}}}`,
		`{"resourceType":"vm","provider":"aws","mode":"create","name":"own-new","region":"us-east-1","team":"{team}","config":{"spec":{}}}`,
		`{"kind":"remediation","config":{"spec":{"action":"pause","jobId":"{job}"}}}`,
		`{"kind":"remediation","subjectId":"{subject}","config":{"spec":{"action":"pause"}}}`,
		`{"resourceType":"component","config":{"spec":{"spaceId":"{space}","component":{"name":"loki"}}}}`,
		`{"resourceType":"network","provider":"aws","mode":"create","name":"own-net","region":"us-east-1","config":{"spec":{"peerings":[{"networkId":"vpc-1","cloudAccountId":"{account}"}]}}}`,
	},
	"POST /provisioning-jobs/install-component":                 {`{"spaceId":"{space}","component":"loki"}`},
	"PATCH /provisioning-jobs/{id}":                             {`{"labels":{"a":"b"}}`, `{"cloudAccountId":"{account}"}`, `{"team":"{team}"}`, `{"name":"{job:name}"}`, `{"config":{"spec":{"spaceId":"{space}"}}}`, `{"config":{"spec":{"jobId":"{job}"}}}`},
	"POST /provisioning-jobs/{id}/diff":                         {`{"spec":{"spaceId":"{space}"}}`, `{"spec":{"jobId":"{job}"}}`, `{"spec":{"cloudAccountId":"{account}"}}`},
	"POST /provisioning-jobs/{id}/databases":                    {`{"name":"more"}`, `{"name":"{database:name}"}`},
	"POST /provisioning-jobs/{id}/connections":                  {`{"service":"own-web"}`, `{"service":"own-web","databaseId":"{database}"}`, `{"service":"own-web","spaceId":"{space}","namespace":"x"}`},
	"POST /provisioning-jobs/{id}/databases/{dbID}/connections": {`{"service":"own-web"}`, `{"service":"own-web","databaseId":"{database}"}`, `{"service":"own-web","spaceId":"{space}","namespace":"x"}`},
	"POST /spaces": {`{"name":"own-space","spaceType":"kubernetes","provider":"aws","cloudAccountId":"{account}","config":{"region":"us-east-1","cluster":"c"}}`,
		`{"name":"{space:name}","spaceType":"kubernetes","provider":"aws","config":{"region":"us-east-1","cluster":"d"}}`},
	"POST /spaces/{id}/namespaces": {`{"name":"x"}`},
	"POST /schedules":              {`{"jobId":"{job}","pauseCron":"0 20 * * *","resumeCron":"0 8 * * *","timeZone":"UTC"}`},
	"PATCH /schedules/{id}":        {`{"enabled":false}`},
	"POST /tokens": {`{"name":"own-more","role":"Viewer","scope":{"kind":"team","id":"{team}"}}`, `{"name":"own-more","role":"{role}","scope":{"kind":"org"}}`,
		`{"name":"own-more","role":"Viewer","scope":{"kind":"resource","id":"{job}"}}`, `{"name":"own-more","role":"Viewer","scope":{"kind":"resource","id":"{account}"}}`,
		`{"name":"{token:name}","role":"Viewer","scope":{"kind":"org"}}`},
	"POST /tokens/{id}/rotate": {`{}`},
	"POST /roles":              {`{"name":"{role:name}","policies":["provisioning-job:view"]}`},
	"PATCH /users/{id}":        {`{"disabled":true}`},
	"PATCH /roles/{id}":        {`{"description":"x"}`, `{"name":"{role:name}"}`},
	"POST /assignments": {`{"subject":{"kind":"token","id":"{token}"},"role":"Viewer","scope":{"kind":"org"}}`, `{"subject":{"kind":"user","id":"{user}"},"role":"Viewer","scope":{"kind":"org"}}`,
		`{"subject":{"kind":"token","id":"own-token"},"role":"{role}","scope":{"kind":"org"}}`, `{"subject":{"kind":"token","id":"own-token"},"role":"Viewer","scope":{"kind":"team","id":"{team}"}}`,
		`{"subject":{"kind":"token","id":"own-token"},"role":"Viewer","scope":{"kind":"resource","id":"{job}"}}`, `{"subject":{"kind":"token","id":"own-token"},"role":"Viewer","scope":{"kind":"resource","id":"{space}"}}`},
	"POST /teams":                      {`{"name":"{team:name}"}`},
	"PATCH /teams/{id}":                {`{"name":"own-renamed"}`, `{"name":"{team:name}"}`},
	"POST /cloud-accounts":             {`{"name":"{account:name}","provider":"aws","method":"ambient","permissionLevel":"read_only"}`, `{"name":"own-more","team":"{team}","provider":"aws","method":"ambient","permissionLevel":"read_only"}`},
	"POST /cloud-accounts/{id}/verify": {`{}`},
	"PATCH /cloud-accounts/{id}":       {`{"permissionLevel":"read_only"}`, `{"name":"{account:name}"}`},
	"POST /webhooks":                   {`{"name":"{webhook:name}","url":"https://example.test/hook"}`},
	"PATCH /webhooks/{id}":             {`{"enabled":false}`, `{"name":"{webhook:name}"}`},
	"PUT /cloud-accounts/{id}/clusters/{region}/{name}/access": {`{"provider":"aws","principal":"arn:aws:iam::123456789012:role/x","level":"view"}`},
}

// ofClouds are fields of bodies that look like references and name things of a cloud,
// or of nobody.
var ofClouds = map[string]bool{
	"networkId": true, "subnetIds": true, "ids": true, "externalId": true, "clientId": true, "tenantId": true, "subscriptionId": true, "projectId": true, "accountId": true,
	"snapshotId": true, "groupId": true, "keyId": true, "kmsKeyId": true, "privateKeyId": true, "poolId": true, "providerId": true, "accessKeyId": true, "imageId": true, "securityGroupId": true,
}

// reference tells fields that may name a thing of an organisation.
var reference = regexp.MustCompile(`(^(id|role|team|token|space|account|subject)$)|Ids?$`)

// TestNothingCrossesOrganisations walks every operation of the document, with every
// parameter and every field of a body that may name a thing, as one organisation with
// the IDs and names of another: each answer is that for an ID that never was, lists
// hold nothing of the other, and nothing of it changes.
func TestNothingCrossesOrganisations(t *testing.T) {
	t.Parallel()
	for name, dsn := range map[string]func(*testing.T) string{
		"sqlite":   func(t *testing.T) string { return filepath.Join(t.TempDir(), "ledger.db") },
		"postgres": func(t *testing.T) string { return pgtest.ServiceDatabase(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTenants(t, dsn(t))
			ops := w.operationsOf()
			w.sameKey()
			before := w.see(ops)
			tried := 0
			walk := func(attempts func(operation) []attempt) {
				for _, op := range ops {
					if slices.Contains(op.policy, string(access.Public)) {
						continue
					}
					for _, a := range attempts(op) {
						w.try(a)
						tried++
					}
				}
			}
			for _, op := range ops {
				op.fixtures(t)
				w.lists(op)
			}
			// What is only asked comes first: later the second organisation's own audit log
			// names what it has tried.
			walk(w.queryAttempts)
			walk(w.pathAttempts)
			walk(w.bodyAttempts)
			walk(w.nameAttempts)
			if tried < 500 {
				t.Errorf("only %d requests were tried", tried)
			}
			after := w.see(ops)
			for path, was := range before {
				if is := after[path]; is != was {
					t.Errorf("%s has changed for the first organisation:\n%s\nwas\n%s", path, is, was)
				}
			}
			t.Logf("%d requests", 2*tried)
		})
	}
}

// sameKey sends the idempotency key of the first organisation: it means nothing in the
// second one, with the same body or another.
func (w *tenants) sameKey() {
	w.t.Helper()
	theirs := w.do(adminToken, "POST", "/provisioning-jobs", vmJob("keyed"), "Idempotency-Key", theirWord+"-key")
	if theirs.status != http.StatusCreated {
		w.t.Fatalf("%d %s", theirs.status, theirs.body)
	}
	w.marks = append(w.marks, theirs.job(w.t).ID)
	own := w.do(otherToken, "POST", "/provisioning-jobs", vmJob("keyed"), "Idempotency-Key", theirWord+"-key")
	if own.status != http.StatusCreated || own.job(w.t).ID == theirs.job(w.t).ID {
		w.t.Errorf("another organisation's idempotency key: %d %s", own.status, own.body)
	}
	w.clean("another organisation's idempotency key", own, nil)
	stream := w.do(otherToken, "GET", "/provisioning-jobs/"+w.own["job"]+"/events", "", "Accept", "application/json", "Last-Event-ID", "1")
	if stream.status != http.StatusOK {
		w.t.Errorf("%d %s", stream.status, stream.body)
	}
	w.clean("a stream's place", stream, nil)
}
