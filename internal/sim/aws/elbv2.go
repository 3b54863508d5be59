package aws

import "github.com/zopday/provisioner/internal/sim"

// The limits of Elastic Load Balancing, as Service Quotas lists them ("Quotas for your Application Load Balancers",
// "Quotas for your Network Load Balancers").
const (
	quotaALBs            = "L-53DA6B97"
	quotaNLBs            = "L-69A177A2"
	quotaTargetGroups    = "L-B22855CB"
	quotaListeners       = "L-B6DF7632"
	quotaTargetsPerGroup = "L-A0D0B863"
)

func newELB(c *Cloud) *elbService {
	s := &elbService{cloud: c, state: &ELBState{}}
	for _, q := range []sim.Quota{
		{Code: quotaALBs, Name: "Application Load Balancers per Region", Default: 50},
		{Code: quotaNLBs, Name: "Network Load Balancers per Region", Default: 50},
		{Code: quotaTargetGroups, Name: "Target Groups per Region", Default: 3000},
		{Code: quotaListeners, Name: "Listeners per Application Load Balancer", Default: 50},
		{Code: quotaTargetsPerGroup, Name: "Targets per Target Group per Region", Default: 1000},
	} {
		q.Cloud, q.Service, q.Unit, q.Adjustable = "aws", elbName, "None", true
		c.World.DefineQuota(q)
	}
	c.World.Register(s)
	c.hooks.instanceGone = append(c.hooks.instanceGone, s.machineGone)
	c.add(&api{
		service: elbName, protocol: queryProtocol, namespace: "http://elasticloadbalancing.amazonaws.com/doc/2015-12-01/", version: "2015-12-01",
		ops: overQuery(s.operations(), "*"), encode: encodeQuery(queryXMLMillis),
		other: &api{
			service: elbName, protocol: queryProtocol, namespace: "http://elasticloadbalancing.amazonaws.com/doc/" + classicVersion + "/", version: classicVersion,
			ops: overQuery(s.classicOperations(), "*"), encode: encodeQuery(queryXMLMillis),
		},
	})
	return s
}

// operations is the API of Elastic Load Balancing.
func (s *elbService) operations() map[string]typedOp {
	return map[string]typedOp{
		"CreateLoadBalancer": op(s.createLoadBalancer), "DescribeLoadBalancers": op(s.describeLoadBalancers), "DeleteLoadBalancer": op(s.deleteLoadBalancer),
		"DescribeLoadBalancerAttributes": op(s.describeLoadBalancerAttributes), "ModifyLoadBalancerAttributes": op(s.modifyLoadBalancerAttributes),
		"SetSecurityGroups": op(s.setSecurityGroups),
		"CreateTargetGroup": op(s.createTargetGroup), "DescribeTargetGroups": op(s.describeTargetGroups), "ModifyTargetGroup": op(s.modifyTargetGroup),
		"DeleteTargetGroup": op(s.deleteTargetGroup), "DescribeTargetGroupAttributes": op(s.describeTargetGroupAttributes),
		"ModifyTargetGroupAttributes": op(s.modifyTargetGroupAttributes), "RegisterTargets": op(s.registerTargets),
		"DeregisterTargets": op(s.deregisterTargets), "DescribeTargetHealth": op(s.describeTargetHealth),
		"CreateListener": op(s.createListener), "DescribeListeners": op(s.describeListeners), "ModifyListener": op(s.modifyListener),
		"DeleteListener": op(s.deleteListener), "DescribeListenerCertificates": op(s.describeListenerCertificates),
		"DescribeListenerAttributes": op(s.describeListenerAttributes), "DescribeRules": op(s.describeRules), "CreateRule": op(s.createRule),
		"DeleteRule": op(s.deleteRule), "AddTags": op(s.addTags), "RemoveTags": op(s.removeTags), "DescribeTags": op(s.describeTags),
		"DescribeSSLPolicies": op(s.describeSSLPolicies), "DescribeAccountLimits": op(s.describeAccountLimits),
	}
}
