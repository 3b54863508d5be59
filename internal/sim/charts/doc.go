// Package charts serves small stand-ins of the charts that platform teams
// install, as a chart repository over HTTP and as an OCI registry: the same names
// and versions as the real ones, of the same shape (kinds of their own, hooks, a
// load balancer, volumes, a schema of the values), and without any of the real
// software. A simulated cluster can be given components with no network at all.
//
// Like every part of the simulation it knows nothing of the product.
package charts
