package ui

import (
	"net/http"
	"testing"

	"github.com/zopday/provisioner/internal/provision"
)

// What a form is refused for by the bound on wrong tokens is answered as such.
func TestTooManyIsSaid(t *testing.T) {
	t.Parallel()
	f := Explain(t.Context(), &provision.Refusal{Kind: "too-many-requests", Message: "too many"})
	if f.Status != http.StatusTooManyRequests || f.Title != "Too many requests" {
		t.Errorf("%+v", f)
	}
}
