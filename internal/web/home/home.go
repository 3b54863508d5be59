// Package home is the page that one starts on: who is signed in, and where jobs are.
package home

import (
	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/web/ui"
)

// Routes mounts the page.
func Routes(m *ui.Mux) {
	m.Get("/", []access.Policy{access.Authenticated}, func(p *ui.Page) error {
		return p.Show(ui.Frame{Title: "Home", Active: "Home"}, welcome(p.Caller.Actor))
	})
}
