package api

func (s *server) opsRoutes()   {}
func (s *server) auditRoutes() {}
func (s *server) docRoutes()   {}
