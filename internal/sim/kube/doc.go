// Package kube gives simulated clusters API servers that are real: it implements
// [sim.Kubernetes] with the binary that the module tools/kube builds, which runs etcd, an API
// server, its controllers, a scheduler and what stands for kubelets in one process.
//
// Before each cluster stands a front of this package, with a port and a certificate of its own.
// The front does what a cloud does before its API servers: it lets connections in or does not,
// asks the cloud who the bearer of a token is, and sends the request on as that user, so that the
// real server's RBAC decides. It keeps count of what it was asked, and can be told to fail.
//
// Behind the front, two more things of the cloud: its Node objects, and its controllers, which
// make load balancers for Services and disks for PersistentVolumeClaims.
//
// Where there is no binary, every front answers 503 and says how to get one.
package kube
