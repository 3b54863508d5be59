// Package web is the web interface at /zopday: pages that the server renders, each
// area in a package of its own. ui is what all of them are made of.
package web

import (
	"github.com/zopday/provisioner/internal/web/home"
	"github.com/zopday/provisioner/internal/web/ui"
)

// New mounts all pages.
func New(d ui.Deps) *ui.Mux {
	m := ui.NewMux(d)
	home.Routes(m)
	return m
}
