package api

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/db"
)

// anew is a rig whose streams ask often who reads them.
func anew(r *rig) {
	r.api.askAnew = 20 * time.Millisecond
	r.api.Poll = 10 * time.Millisecond
}

// over waits for the end of a stream, and fails if it goes on or said that the job
// is at rest.
func over(t *testing.T, what string, ch <-chan message) {
	t.Helper()
	for within := time.After(10 * time.Second); ; {
		select {
		case m, ok := <-ch:
			if !ok {
				return
			}
			if m.event == "end" {
				t.Errorf("%s: the stream ended as if the job were at rest", what)
			}
		case <-within:
			t.Fatalf("%s: the stream goes on", what)
		}
	}
}

// A stream ends with the right to read it.
func TestEventStreamEndsWithTheRight(t *testing.T) { onBoth(t, testEventStreamEndsWithTheRight) }

func testEventStreamEndsWithTheRight(t *testing.T, r *rig) {
	r.withTokens()
	anew(r)
	for what, end := range map[string]func(id string){
		"a revoked token": func(id string) {
			if a := r.do(adminToken, "DELETE", "/tokens/"+id, ""); a.status != http.StatusNoContent && a.status != http.StatusOK {
				t.Fatalf("%d %s", a.status, a.body)
			}
		},
		"a role that is gone": func(id string) {
			if _, err := r.db.Exec(db.System(t.Context()), `DELETE FROM assignments WHERE org_id = 'org1' AND subject = $1`, id); err != nil {
				t.Fatal(err)
			}
		},
	} {
		name := strings.Fields(what)[1]
		v := r.create(vmJob(name))
		tok := r.token(adminToken, `{"name":"`+name+`","role":"Viewer",`+orgWide+`}`)
		ch := r.follow(t.Context(), v.ID, "Authorization", "Bearer "+tok.Secret)
		next(t, ch)
		// It outlives several questions as long as nothing changes.
		time.Sleep(100 * time.Millisecond)
		r.event(v.ID, "for "+name)
		if m, ok := next(t, ch); !ok || !strings.Contains(m.data, "for "+name) {
			t.Fatalf("%s: %+v before anything changed", what, m)
		}
		end(tok.ID)
		over(t, what, ch)
	}
}

// Whoever is shut out reads no further, and neither does who signed out.
func TestEventStreamEndsWithTheSession(t *testing.T) {
	t.Parallel()
	s := newSignInRig(t)
	anew(s.rig)
	s.server = httptest.NewServer(s.api.outer(s.api.mux))
	t.Cleanup(s.server.Close)
	b := s.browser()
	b.do("GET", "/auth/login", "")
	var me SignedIn
	b.do("GET", "/auth/session", "").into(t, &me)
	err := s.db.InTx(db.WithOrg(t.Context(), "org1"), func(ctx context.Context, tx db.Q) error {
		_, _, err := access.AddAssignment(ctx, tx, access.Assignment{
			OrgID: "org1", Subject: access.Subject{Kind: access.SubjectUser, ID: me.Session.UserID}, RoleID: access.Editor, Scope: access.Scope{Kind: access.OrgScope}, CreatedBy: "test",
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	a := b.do("POST", "/provisioning-jobs", vmJob("shop"), "Sec-Fetch-Site", ownPage)
	var v struct{ ID string }
	if a.into(t, &v); v.ID == "" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	cookie := "__Host-" + sessionCookie + "=" + b.held("__Host-"+sessionCookie)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.server.URL+"/provisioning-jobs/"+v.ID+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Cookie", cookie)
	resp, err := s.server.Client().Do(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%v %v", resp, err)
	}
	defer resp.Body.Close()
	ch := read(resp.Body)
	next(t, ch)
	if _, err := s.db.Exec(db.System(t.Context()), `UPDATE users SET disabled = true WHERE org_id = 'org1' AND id = $1`, me.Session.UserID); err != nil {
		t.Fatal(err)
	}
	over(t, "a person who is shut out", ch)
}

// A stream has an end in any case, and goes on where it was.
func TestEventStreamLife(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.api.streamLife = 200 * time.Millisecond
	v := r.create(vmJob("shop"))
	ch := r.follow(t.Context(), v.ID)
	m, _ := next(t, ch)
	over(t, "an hour", ch)
	r.event(v.ID, "meanwhile")
	if m, ok := next(t, r.follow(t.Context(), v.ID, "Last-Event-ID", m.id)); !ok || !strings.Contains(m.data, "meanwhile") {
		t.Errorf("resumed with %+v", m)
	}
}
