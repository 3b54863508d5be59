package api

func (s *server) readRoutes() {}
