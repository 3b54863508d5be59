package server

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/zopday/provisioner/internal/api"
	"github.com/zopday/provisioner/internal/provision"
	"github.com/zopday/provisioner/internal/web"
	"github.com/zopday/provisioner/internal/web/ui"
)

// pages makes the web pages for the server that they are part of.
func (s *Server) pages(c Config, use *provision.Service) func(api.PageHost) http.Handler {
	return func(h api.PageHost) http.Handler {
		return web.New(ui.Deps{
			Service: use, Caller: h.Caller, Log: c.Log, Site: ui.Site{Version: c.Version.Version, Public: cmp.Or(strings.TrimSuffix(c.SignIn.PublicURL, "/"), s.url)},
			Door: ui.Door{
				Enter: h.Enter, Leave: h.Leave,
				Choices: func(next string) []ui.Link {
					names, links := h.SignInLinks(next)
					var out []ui.Link
					for i, name := range names {
						out = append(out, ui.Link{Text: name, Href: links[i]})
					}
					return out
				},
			},
		})
	}
}
