// Package aws is a simulated AWS: one HTTP handler that speaks the wire protocols of EC2, IAM, STS, Systems Manager,
// Service Quotas, Route 53, Elastic Load Balancing v2, Auto Scaling, Certificate Manager, CloudWatch and its logs, S3, KMS, EKS,
// RDS, ElastiCache and Secrets Manager, for use with AWS_ENDPOINT_URL. State, faults, clock and books are those of a [sim.World].
//
// # Adding a service
//
// A service is a [sim.Service] (its state, objects and events) and an api, the table of its operations:
//
//	func newThing(c *Cloud) *thing {
//		t := &thing{cloud: c}
//		c.World.Register(t)
//		c.add(&api{
//			service:   "thing",       // the name in the SigV4 credential scope
//			protocol:  queryProtocol, // ec2Protocol, queryProtocol, jsonProtocol, restXMLProtocol, restJSONProtocol or s3Protocol
//			namespace: "http://thing.amazonaws.com/doc/2010-05-08/", // JSON: the X-Amz-Target prefix
//			encode:    func(out any) ([]byte, error) { … },
//			ops:       map[string]operation{"CreateThing": t.create, "DescribeThings": t.describe},
//		})
//		return t
//	}
//
// and a line in addServices. An operation gets a *request and answers a value for encode, or an error; a *Error is
// rendered in the protocol's own envelope, anything else is an InternalFailure. It runs with the world locked. It names
// the objects it is about with r.Touch(ids…), and those that it makes or sets in motion with r.Make(ids…); the books and
// the faults live on that. Operations named Describe…, Get…, List… and the like count as reads; reads in api.reads do
// too.
//
// What encode returns: the inner elements of the answer (query protocols; the front end adds envelope and request ID), or
// the whole body (JSON, REST-XML). An operation may also answer a *httpReply to set status and headers.
//
// Time is c.World.Now(), identifiers come from c.World.Hex, delayed changes from c.World.After("aws", …). Reads hide fresh
// objects with c.World.Visible. Quotas are declared with c.World.DefineQuota and read with c.quota.
//
// # Clusters
//
// What EKS makes in an account is made through the other services' own methods, on the account's behalf (onBehalf): an Auto
// Scaling group of a launch template and an instance profile for a node group, whose instances are the nodes. A node group and
// an add-on look after themselves every few seconds (tickGroup, tickAddon), a change of either is an EKSUpdate, which holds
// what it will set as data. The API server behind a cluster is one of [sim.Kubernetes]; kubeBridge, which runs without the
// world's lock, opens and closes them and tells them their nodes: around every request to EKS, and when kick is called.
//
// # Datastores and caches
//
// The answers of RDS and ElastiCache are the SDK's own structs, which are kept as they are described, with what nobody sees
// beside them; encodeSchema writes them as their models say. The servers behind are a [sim.Databases]: databaseBridge compares
// what should be there with what it has asked for, after every event and around every request, so that a swallowed request or a
// restart leaves nothing apart. Parameters in api.secrets are blanked before faults and books see a request, and passwords
// are in no object's Data.
//
// # What EC2 offers to the other services
//
// platform_ec2.go is how they see it: machines and what runs in them (guest.go), subnets, security groups, network
// interfaces of load balancers, public images. Auto Scaling launches through launch and terminate. What services ask of
// one another are the function fields in hooks.
package aws
