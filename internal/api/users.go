package api

import "github.com/danielgtaylor/huma/v2"

// userRoutes are the people who have signed in, for those who manage roles.
func (s *server) userRoutes() {
	accessList(s, huma.Operation{
		OperationID: "list-users", Path: "/users", Summary: "List the people who have signed in", Description: "Of your organisation, the newest first.",
	}, manageRoles, s.Service.ListUsers)
	accessGet(s, huma.Operation{OperationID: "get-user", Path: "/users/{id}", Summary: "Get one who has signed in"}, manageRoles, s.Service.GetUser)
	accessPatch(s, huma.Operation{
		OperationID: "patch-user", Path: "/users/{id}", Summary: "Keep a user out, or let one in again",
		Description: "Who is kept out loses every session at once. The last admin cannot be kept out, and nobody lets in who holds more than they do.",
	}, manageRoles, s.Service.PatchUser)
}
