package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/zopday/provisioner/internal/access"
)

// An attempt is one request, once with values of the first organisation and once with
// values of nobody in their places.
type attempt struct {
	method         string
	theirs, nobody request
	pairs          [][2]string
	inPath         bool
}

type request struct{ path, body string }

// varying is what differs between two answers to the same question: IDs, times, hashes.
var varying = regexp.MustCompile(`\bwhsec_[0-9A-Za-z+/]{20,}=*|\b[a-z]{2,4}_[0-9a-z]{20,}\b|\d{4}-\d\d-\d\dT[0-9:.]+Z|\b[0-9a-f]{64}\b|VALUE_[0-9a-z]{8}\b|"hint":"[0-9a-z]{8}"`)

// normal is an answer without what varies and without the values that were asked with.
func normal(a answer, pairs [][2]string) string {
	text := fmt.Sprint(a.status, " ", a.header.Get("Content-Type"), " ", a.header.Get("Location"), " ", a.header.Get("ETag"), " ", a.header.Get("Retry-After"), "\n", string(a.body))
	for _, p := range pairs {
		for _, v := range p {
			for _, form := range []string{v, url.PathEscape(v), url.QueryEscape(v), strings.ReplaceAll(v, "-", "_")} {
				text = strings.ReplaceAll(text, form, "VALUE")
			}
		}
	}
	return varying.ReplaceAllString(text, "ID")
}

// try sends both requests of an attempt as the second organisation and compares.
func (w *tenants) try(a attempt) {
	w.t.Helper()
	theirs := w.do(otherToken, a.method, a.theirs.path, a.theirs.body, "Accept", "application/json")
	nobody := w.do(otherToken, a.method, a.nobody.path, a.nobody.body, "Accept", "application/json")
	what := fmt.Sprintf("%s %s %s", a.method, a.theirs.path, a.theirs.body)
	if got, want := normal(theirs, a.pairs), normal(nobody, a.pairs); got != want {
		w.t.Errorf("%s: what is another organisation's is told from what is nobody's:\n%s\nand with nobody's (%s %s):\n%s", what, got, a.nobody.path, a.nobody.body, want)
	}
	if a.inPath && theirs.status != http.StatusNotFound {
		w.t.Errorf("%s: %d %s, want 404", what, theirs.status, theirs.body)
	}
	if theirs.status >= 500 {
		w.t.Errorf("%s: %d %s", what, theirs.status, theirs.body)
	}
	var used []string
	for _, p := range a.pairs {
		used = append(used, p[0])
	}
	w.clean(what, theirs, used)
}

// clean checks that an answer holds nothing of the first organisation, but for what
// the request said itself.
func (w *tenants) clean(what string, a answer, used []string) {
	w.t.Helper()
	text := string(a.body) + fmt.Sprint(a.header)
	for _, v := range used {
		text = strings.NewReplacer(v, "", url.PathEscape(v), "", url.QueryEscape(v), "", strings.ReplaceAll(v, "-", "_"), "").Replace(text)
	}
	for _, m := range w.marks {
		if strings.Contains(text, m) {
			w.t.Errorf("%s: the answer holds %s of another organisation: %d %s", what, m, a.status, a.body)
			return
		}
	}
}

// lists asks for everything that the second organisation can ask for without naming
// anything, and goes on with the cursors of the first organisation: nothing of that one
// is in any answer.
func (w *tenants) lists(op operation) {
	w.t.Helper()
	if op.method != "GET" || slices.Contains(op.policy, string(access.Public)) {
		return
	}
	w.clean(op.name, w.do(otherToken, "GET", withQuery(op, w.ownPath(op)), "", "Accept", "application/json"), nil)
	if !slices.Contains(op.query, "cursor") || strings.Contains(op.path, "{") {
		return
	}
	a := w.do(adminToken, "GET", withQuery(op, op.path, "limit=1"), "")
	var page struct{ Meta struct{ NextCursor *string } }
	if err := json.Unmarshal(a.body, &page); err != nil || page.Meta.NextCursor == nil {
		w.t.Errorf("%s gives the first organisation no cursor: %d %s", op.name, a.status, a.body)
		return
	}
	cursor := *page.Meta.NextCursor
	w.clean(op.name+" with another organisation's cursor", w.do(otherToken, "GET", withQuery(op, op.path, "limit=50", "cursor="+url.QueryEscape(cursor)), ""), []string{cursor})
}

// changing is what is another at each look: the request, clocks, and words about them.
var changing = regexp.MustCompile(`"requestId":"req_[^"]*"|"unsealedSeconds":[0-9.]+|"(at|now|generatedAt)":"[^"]*"|"sentence":"[^"]*"`)

// see is everything that the first organisation sees, in lists and one by one. What it
// is refused is left out: that is an entry of its audit log.
func (w *tenants) see(ops []operation) map[string]string {
	w.t.Helper()
	out := map[string]string{}
	for _, op := range ops {
		if op.method != "GET" || slices.Contains(op.policy, string(access.Public)) || op.path == "/provisioning-jobs/{id}/explain" || ofTheInstallation[op.name] || strings.Contains(op.path, "{region}") {
			continue
		}
		paths := []string{op.path}
		if names, kinds := op.params(w.t); len(names) == 1 {
			paths = nil
			for _, v := range w.theirs[kinds[0]] {
				paths = append(paths, strings.Replace(op.path, names[0], url.PathEscape(v), 1))
			}
		} else if len(names) > 1 {
			continue
		}
		for _, p := range paths {
			a := w.do(adminToken, "GET", withQuery(op, p), "", "Accept", "application/json")
			out[p] = changing.ReplaceAllString(fmt.Sprint(a.status, " ", string(a.body)), "")
		}
	}
	return out
}
