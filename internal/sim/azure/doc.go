// Package azure is a simulated Azure: one HTTP handler that speaks Azure Resource Manager's REST protocol as the SDK's arm…
// clients do, and the part of the Microsoft identity platform that hands out its tokens. It has to be served over TLS, since
// the SDK sends no bearer token over plain HTTP; [NewCertificate] makes a certificate and the CA to trust. State, faults,
// clock and books are those of a [sim.World].
//
// # Adding a resource type
//
// A service is a shelf of resources; a resource type is a kind on it:
//
//	func (c *Cloud) addThings() {
//		c.newShelf("thing")
//		c.addKind(&kind{
//			typ: "Microsoft.Thing/things", service: "thing", versions: []string{"2024-01-01"},
//			tracked: true, // has a location and tags
//			model:   func() any { return &armthing.Thing{} },
//			put: func(r *request, now, old *Resource) (outcome, error) {
//				now.Properties.def("size", "Small")
//				return outcome{state: stateCreating, takes: 30 * time.Second, style: asyncHeader, retryAfter: 10}, nil
//			},
//			remove: func(r *request, res *Resource) (outcome, error) {
//				return outcome{status: 202, takes: 20 * time.Second, state: stateDeleting, style: asyncLocation, retryAfter: 10, empty: true}, nil
//			},
//		})
//	}
//
// and a line in addServices. The core does the rest: PUT, PATCH, GET, HEAD, DELETE and lists; the checks of api-version, group,
// parent, registration, locks, location, tags, etags and of the body against the SDK's model (enum values that were named with
// allow included); provisioningState and the asynchronous operation, which ends by itself on the simulated clock. put
// completes and checks the new resource; old is nil when there was none. POSTs below a resource are kind.actions, GETs below it
// kind.views, everything else is a route (Cloud.handle). All of it runs with the world locked.
//
// # What resources know of each other
//
// Cloud.find looks a resource up by ID in all services, Cloud.children lists what lies in it, Cloud.usesOf who refers to it: any
// {"id": …} in another resource is a reference. An object with an "id" and more members is a sub-resource: it is named as the
// user. So a kind that keeps its references in its properties blocks the deletion of what it uses without further code.
//
// # Datastores and caches
//
// Behind flexible servers, Azure Managed Redis and Azure Cache for Redis stand the servers of [Options].Databases: databases.go opens
// and closes them as the resources go through their states. What the API shows as the host name is where the server answers, with the
// port behind it where the API has no member for that. Vaults answer their data plane under /keyvault/<name>/ of the same handler:
// a client has to be told not to hold the host name against the audience of its token (DisableChallengeResourceVerification).
package azure
