package aws

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
)

func (r *ELBRule) sdk() types.Rule {
	out := types.Rule{RuleArn: &r.ARN, Priority: new(strconv.Itoa(r.Priority)), Conditions: []types.RuleCondition{}, Actions: sdkActions(r.Actions), IsDefault: new(false)}
	for _, cond := range r.Conditions {
		out.Conditions = append(out.Conditions, types.RuleCondition{Field: new(cond.Field), Values: cond.Values})
	}
	return out
}

// defaultRule is the rule that every listener has from the beginning.
func (l *ELBListener) defaultRule() types.Rule {
	id := l.ARN[strings.LastIndex(l.ARN, "/")+1:]
	arn := strings.Replace(l.ARN, ":listener/", ":listener-rule/", 1) + "/" + id[8:] + id[:8]
	return types.Rule{RuleArn: &arn, Priority: new("default"), Conditions: []types.RuleCondition{}, Actions: sdkActions(l.Actions), IsDefault: new(true)}
}

func (s *elbService) describeRules(c *reqCtx, in *elb.DescribeRulesInput) (*elb.DescribeRulesOutput, error) {
	sc, all := s.state.in(c.scope()), []types.Rule{}
	if len(in.RuleArns) > 0 {
		for _, arn := range in.RuleArns {
			if r := sc.Rules[arn]; r != nil {
				all = append(all, r.sdk())
				continue
			}
			found := false
			for _, l := range sc.Listeners {
				if d := l.defaultRule(); *d.RuleArn == arn {
					all, found = append(all, d), true
				}
			}
			if !found {
				return nil, fail(400, "RuleNotFound", "One or more rules not found")
			}
		}
		return &elb.DescribeRulesOutput{Rules: all}, nil
	}
	l, err := s.listener(c, in.ListenerArn)
	if err != nil {
		return nil, err
	}
	var rules []*ELBRule
	for _, arn := range sortedKeys(sc.Rules) {
		if sc.Rules[arn].Listener == l.ARN {
			rules = append(rules, sc.Rules[arn])
		}
	}
	slices.SortFunc(rules, func(a, b *ELBRule) int { return a.Priority - b.Priority })
	for _, r := range rules {
		all = append(all, r.sdk())
	}
	all = append(all, l.defaultRule())
	page, next, err := elbPage(c, all, in.Marker, in.PageSize)
	return &elb.DescribeRulesOutput{Rules: page, NextMarker: next}, err
}

func (s *elbService) createRule(c *reqCtx, in *elb.CreateRuleInput) (*elb.CreateRuleOutput, error) {
	l, err := s.listener(c, in.ListenerArn)
	if err != nil {
		return nil, err
	}
	sc, r := s.state.in(c.scope()), &ELBRule{Listener: l.ARN, Priority: int(deref(in.Priority)), Created: c.now}
	if r.Priority < 1 || r.Priority > 50000 {
		return nil, failValidation("1 validation error detected: Value '%d' at 'priority' failed to satisfy constraint: Member must have value less than or equal to 50000", r.Priority)
	}
	if len(in.Conditions) == 0 {
		return nil, failValidation("A condition must be specified")
	}
	for _, cond := range in.Conditions {
		r.Conditions = append(r.Conditions, ELBCondition{deref(cond.Field), conditionValues(cond)})
	}
	for _, other := range sc.Rules {
		if other.Listener == l.ARN && other.Priority == r.Priority {
			return nil, fail(400, "PriorityInUse", "Priority '%d' is currently in use", r.Priority)
		}
	}
	if r.Actions, err = s.checkActions(c, sc.Balancers[l.Balancer], l.Protocol, in.Actions); err != nil {
		return nil, err
	}
	if r.Tags, err = checkELBTags(nil, in.Tags); err != nil {
		return nil, err
	}
	r.ARN = strings.Replace(l.ARN, ":listener/", ":listener-rule/", 1) + "/" + c.w.Hex("", 16)
	sc.Rules[r.ARN] = r
	c.Make(r.ARN)
	s.startForwarded(c.scope(), sc, r.Actions)
	return &elb.CreateRuleOutput{Rules: []types.Rule{r.sdk()}}, nil
}

func conditionValues(cond types.RuleCondition) []string {
	switch {
	case cond.PathPatternConfig != nil:
		return cond.PathPatternConfig.Values
	case cond.HostHeaderConfig != nil:
		return cond.HostHeaderConfig.Values
	case cond.SourceIpConfig != nil:
		return cond.SourceIpConfig.Values
	}
	return cond.Values
}

func (s *elbService) deleteRule(c *reqCtx, in *elb.DeleteRuleInput) (*elb.DeleteRuleOutput, error) {
	sc := s.state.in(c.scope())
	if sc.Rules[deref(in.RuleArn)] == nil {
		return nil, fail(400, "RuleNotFound", "One or more rules not found")
	}
	c.Touch(*in.RuleArn)
	delete(sc.Rules, *in.RuleArn)
	return &elb.DeleteRuleOutput{}, nil
}

// sslPolicies are the security policies that listeners can have, with the protocols they allow.
var sslPolicies = map[string][]string{
	"ELBSecurityPolicy-2016-08":                  {"TLSv1", "TLSv1.1", "TLSv1.2"},
	"ELBSecurityPolicy-TLS13-1-2-2021-06":        {"TLSv1.2", "TLSv1.3"},
	"ELBSecurityPolicy-TLS13-1-2-Res-2021-06":    {"TLSv1.2", "TLSv1.3"},
	"ELBSecurityPolicy-TLS13-1-2-Ext1-2021-06":   {"TLSv1.2", "TLSv1.3"},
	"ELBSecurityPolicy-TLS13-1-2-Ext2-2021-06":   {"TLSv1.2", "TLSv1.3"},
	"ELBSecurityPolicy-TLS13-1-3-2021-06":        {"TLSv1.3"},
	"ELBSecurityPolicy-TLS13-1-2-Res-PQ-2025-09": {"TLSv1.2", "TLSv1.3"},
	"ELBSecurityPolicy-TLS13-1-2-FIPS-2023-04":   {"TLSv1.2", "TLSv1.3"},
	"ELBSecurityPolicy-TLS-1-2-2017-01":          {"TLSv1.2"},
	"ELBSecurityPolicy-TLS-1-2-Ext-2018-06":      {"TLSv1.2"},
	"ELBSecurityPolicy-TLS-1-1-2017-01":          {"TLSv1.1", "TLSv1.2"},
	"ELBSecurityPolicy-FS-1-2-Res-2020-10":       {"TLSv1.2"},
	"ELBSecurityPolicy-FS-1-2-2019-08":           {"TLSv1.2"},
	"ELBSecurityPolicy-FS-2018-06":               {"TLSv1", "TLSv1.1", "TLSv1.2"},
	"ELBSecurityPolicy-2015-05":                  {"TLSv1", "TLSv1.1", "TLSv1.2"},
}

func (s *elbService) describeSSLPolicies(c *reqCtx, in *elb.DescribeSSLPoliciesInput) (*elb.DescribeSSLPoliciesOutput, error) {
	names := in.Names
	if len(names) == 0 {
		names = sortedKeys(sslPolicies)
	}
	all := []types.SslPolicy{}
	for _, name := range names {
		protocols := sslPolicies[name]
		if protocols == nil {
			return nil, fail(400, "SSLPolicyNotFound", "One or more of the SSL policies specified do not exist")
		}
		p := types.SslPolicy{Name: new(name), SslProtocols: protocols, SupportedLoadBalancerTypes: []string{"application", "network"}}
		for i, cipher := range []string{"TLS_AES_128_GCM_SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES128-SHA256", "ECDHE-RSA-AES128-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384"} {
			p.Ciphers = append(p.Ciphers, types.Cipher{Name: new(cipher), Priority: new(int32(i + 1))})
		}
		all = append(all, p)
	}
	page, next, err := elbPage(c, all, in.Marker, in.PageSize)
	return &elb.DescribeSSLPoliciesOutput{SslPolicies: page, NextMarker: next}, err
}

func (s *elbService) describeAccountLimits(c *reqCtx, in *elb.DescribeAccountLimitsInput) (*elb.DescribeAccountLimitsOutput, error) {
	all := []types.Limit{}
	for _, l := range []struct{ name, code string }{
		{"application-load-balancers", quotaALBs}, {"network-load-balancers", quotaNLBs}, {"target-groups", quotaTargetGroups},
		{"listeners-per-application-load-balancer", quotaListeners}, {"targets-per-target-group", quotaTargetsPerGroup},
	} {
		all = append(all, types.Limit{Name: new(l.name), Max: new(fmt.Sprintf("%.0f", s.cloud.quota(c.scope(), elbName, l.code)))})
	}
	page, next, err := elbPage(c, all, in.Marker, in.PageSize)
	return &elb.DescribeAccountLimitsOutput{Limits: page, NextMarker: next}, err
}
