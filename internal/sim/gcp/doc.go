// Package gcp is a simulated Google Cloud: one HTTP handler that speaks REST with JSON as the clients of
// google.golang.org/api do. Every service is told by its path: /compute/v1/…, /dns/v1/…, /v1/projects/…. State, faults,
// clock and books are those of a [sim.World].
//
// # How a request is served
//
// The front end finds the method by its path in the discovery documents (package schema), tells the caller by the bearer
// token, checks parameters and body against the schemas, and calls the operation with the world locked. What the operation
// answers is checked against the schema too; an answer that does not fit is a 500, since it is a mistake in the simulation.
// Documents are plain JSON, [Doc]; 64-bit integers in them are texts, other numbers float64.
//
// # Adding a service
//
// A service is a [sim.Service] and an api, the table of its operations by method name:
//
//	c.World.Register(t)
//	c.add("thing/v1", &api{service: "thing", listErrors: true, ops: map[string]operation{"projects.things.get": t.get}})
//
// The methods have to be in schema/served.txt, then go generate ./schema. An operation gets a *request (Path, Query, Body,
// Project, Who) and answers a document or an error; a *Error (refuse) is rendered in Google's envelope. It names the objects
// that it is about with r.Touch, those that it makes or sets in motion with r.Make. What services ask of one another are the
// function fields in hooks.
//
// # Adding a kind of object to Compute Engine
//
// A [kind] in one of the lists of allKinds gives get, list, aggregatedList, insert, delete and setLabels, with operations,
// request IDs, quotas, reference and in-use checks. Other methods go into a function in addMethods; such a method
//
//   - finds its object with e.change(r, k), which refuses what is being changed,
//   - begins an operation with e.start(r, change{Type: "resize", Target: res, Action: actReplace, Doc: newDocument}),
//     where the document holds from the moment when the operation is done, and answers what start answers.
//
// An action of one's own is a function in e.actions, called when the operation is done: a *Error from it ends the operation
// with that error. Data for it travels in change.Args and change.Doc. Delayed changes other than operations are events:
// e.events["kind"] = func(key string), scheduled with e.later. Links are read with e.link (one field) or
// e.cloud.pathOfLink, written with selfLink.
//
// # Clusters
//
// What GKE makes for a cluster in the project is made through Compute Engine's own methods ([container.invoke]): an address for
// the private endpoint, firewall rules, and for every zone of a node pool a template and a managed instance group, whose
// instances are the nodes. An operation of GKE is a [clusterAction]: begin makes, ready is asked until it says yes, done and failed
// settle the states. The API server behind a cluster is one of [sim.Kubernetes]; syncKube, which runs without the world's lock,
// opens and closes them and tells them their nodes. A cluster that goes on being changed by GKE itself, so that all changes are
// refused, is made with SetState(cluster, "RECONCILING").
package gcp
