package api

import "net/http"

const maxStreams = 500

func (s *server) eventRoutes() {}

func wantsJSON(*http.Request) bool { return false }
