package aws

import (
	"slices"
	"strings"

	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
)

func notFoundListener(arn string) error {
	return fail(400, "ListenerNotFound", "Listener '%s' not found", arn)
}

func (s *elbService) listener(c *reqCtx, arn *string) (*ELBListener, error) {
	if arn == nil {
		return nil, failMissing("listenerArn")
	}
	if !strings.HasPrefix(*arn, c.regionalARN(elbName, "listener/")) {
		return nil, failValidation("'%s' is not a valid listener ARN", *arn)
	}
	l := s.state.in(c.scope()).Listeners[*arn]
	if l == nil || !c.visible(l.ARN, l.Created, false, "listener", tagValues(l.Tags)) {
		return nil, fail(400, "ListenerNotFound", "One or more listeners not found")
	}
	c.Touch(l.ARN)
	return l, nil
}

// checkActions reads and checks the actions of a listener or rule.
func (s *elbService) checkActions(c *reqCtx, b *LoadBalancer, protocol string, in []types.Action) ([]ELBAction, error) {
	if len(in) == 0 {
		return nil, failValidation("At least one default action must be specified")
	}
	sc := s.state.in(c.scope())
	var out []ELBAction
	for _, a := range in {
		x := ELBAction{Type: string(a.Type), Order: deref(a.Order)}
		switch a.Type {
		case types.ActionTypeEnumForward:
			if a.TargetGroupArn != nil {
				x.Simple = *a.TargetGroupArn
				x.Groups = []ELBWeighted{{*a.TargetGroupArn, 1}}
			}
			if a.ForwardConfig != nil && len(a.ForwardConfig.TargetGroups) > 0 {
				x.Groups = nil
				for _, g := range a.ForwardConfig.TargetGroups {
					x.Groups = append(x.Groups, ELBWeighted{deref(g.TargetGroupArn), orDefault(g.Weight, 1)})
				}
				if st := a.ForwardConfig.TargetGroupStickinessConfig; st != nil {
					x.Sticky, x.Duration = st.Enabled, st.DurationSeconds
				}
				if len(x.Groups) == 1 {
					x.Simple = x.Groups[0].ARN
				}
			}
			if len(x.Groups) == 0 {
				return nil, failValidation("A target group ARN must be specified")
			}
			for _, g := range x.Groups {
				if err := s.checkForward(sc, b, protocol, g.ARN); err != nil {
					return nil, err
				}
			}
		case types.ActionTypeEnumRedirect:
			if a.RedirectConfig == nil || a.RedirectConfig.StatusCode == "" {
				return nil, failValidation("A redirect configuration must be specified with a status code")
			}
			r := a.RedirectConfig
			x.Redirect = map[string]string{"Protocol": orDefault(r.Protocol, "#{protocol}"), "Port": orDefault(r.Port, "#{port}"), "Host": orDefault(r.Host, "#{host}"),
				"Path": orDefault(r.Path, "/#{path}"), "Query": orDefault(r.Query, "#{query}"), "StatusCode": string(r.StatusCode)}
		case types.ActionTypeEnumFixedResponse:
			if a.FixedResponseConfig == nil || a.FixedResponseConfig.StatusCode == nil {
				return nil, failValidation("A fixed response configuration must be specified with a status code")
			}
			f := a.FixedResponseConfig
			x.Fixed = map[string]string{"StatusCode": *f.StatusCode, "ContentType": deref(f.ContentType), "MessageBody": deref(f.MessageBody)}
		default:
			return nil, failValidation("Action type '%s' must be one of 'redirect, fixed-response, forward, authenticate-cognito, authenticate-oidc'", a.Type)
		}
		out = append(out, x)
	}
	return out, nil
}

// checkForward refuses a target group that a listener cannot send to.
func (s *elbService) checkForward(sc *ELBScope, b *LoadBalancer, protocol, arn string) error {
	g := sc.Groups[arn]
	if g == nil {
		return fail(400, "TargetGroupNotFound", "Target group '%s' not found", arn)
	}
	if g.VpcID != b.VpcID {
		return fail(400, "InvalidConfigurationRequest", "The target group '%s' is in a different VPC than the load balancer", arn)
	}
	compatible := map[string][]string{"HTTP": {"HTTP", "HTTPS"}, "HTTPS": {"HTTP", "HTTPS"}, "TCP": {"TCP", "TCP_UDP"}, "TLS": {"TCP", "TLS"},
		"UDP": {"UDP", "TCP_UDP"}, "TCP_UDP": {"TCP_UDP"}}
	if !slices.Contains(compatible[protocol], g.Protocol) {
		return fail(400, "InvalidConfigurationRequest", "Listener protocol '%s' is not supported with a target group with the protocol '%s'", protocol, g.Protocol)
	}
	for _, other := range sc.balancersOf(arn) {
		if other != b {
			return fail(400, "TargetGroupAssociationLimit", "The following target groups cannot be associated with more than one load balancer: %s", arn)
		}
	}
	return nil
}

// checkListener refuses a protocol, certificate or policy that does not fit the load balancer.
func (s *elbService) checkListener(c *reqCtx, b *LoadBalancer, protocol, policy string, certs []string) error {
	allowed := []string{"HTTP", "HTTPS"}
	if b.Type == "network" {
		allowed = []string{"TCP", "TLS", "UDP", "TCP_UDP"}
	}
	if !slices.Contains(allowed, protocol) {
		return failValidation("Protocol '%s' is not supported on load balancers with type '%s'. Supported protocols: [%s]", protocol, b.Type, strings.Join(allowed, ", "))
	}
	secure := protocol == "HTTPS" || protocol == "TLS"
	if !secure {
		if len(certs) > 0 {
			return failValidation("A certificate cannot be specified for %s listeners", protocol)
		}
		if policy != "" {
			return failValidation("An SSL policy cannot be specified for %s listeners", protocol)
		}
		return nil
	}
	if len(certs) == 0 {
		return failValidation("A certificate must be specified for %s listeners", protocol)
	}
	if policy != "" && sslPolicies[policy] == nil {
		return fail(400, "SSLPolicyNotFound", "SSL policy '%s' not found", policy)
	}
	for _, arn := range certs {
		switch state, ok := s.cloud.certificateState(c.scope(), arn); {
		case !ok:
			return fail(400, "CertificateNotFound", "Certificate '%s' not found", arn)
		case state != "ISSUED":
			return fail(400, "UnsupportedCertificate", "The certificate '%s' must have a fully-qualified domain name, a supported signature, and a supported key size.", arn)
		}
	}
	return nil
}

func (s *elbService) createListener(c *reqCtx, in *elb.CreateListenerInput) (*elb.CreateListenerOutput, error) {
	b, err := s.balancer(c, in.LoadBalancerArn)
	if err != nil {
		return nil, err
	}
	port := deref(in.Port)
	if port < 1 || port > 65535 {
		return nil, failValidation("1 validation error detected: Value '%d' at 'port' failed to satisfy constraint: Member must have value greater than or equal to 1", port)
	}
	l := &ELBListener{Balancer: b.ARN, Protocol: string(in.Protocol), Port: port, Policy: deref(in.SslPolicy), Alpn: in.AlpnPolicy, Created: c.now}
	for _, cert := range in.Certificates {
		l.Certificates = append(l.Certificates, deref(cert.CertificateArn))
	}
	if err := s.checkListener(c, b, l.Protocol, l.Policy, l.Certificates); err != nil {
		return nil, err
	}
	if len(l.Certificates) > 0 && l.Policy == "" {
		l.Policy = "ELBSecurityPolicy-2016-08"
	}
	if l.Tags, err = checkELBTags(nil, in.Tags); err != nil {
		return nil, err
	}
	if l.Actions, err = s.checkActions(c, b, l.Protocol, in.DefaultActions); err != nil {
		return nil, err
	}
	sc, n := s.state.in(c.scope()), 0
	for _, other := range sc.Listeners {
		if other.Balancer != b.ARN {
			continue
		}
		n++
		if other.Port == port {
			return nil, fail(400, "DuplicateListener", "A listener already exists on this port for this load balancer '%s'", b.ARN)
		}
	}
	if float64(n) >= s.cloud.quota(c.scope(), elbName, quotaListeners) {
		return nil, fail(400, "TooManyListeners", "The maximum number of listeners has been reached on load balancer '%s'", b.ARN)
	}
	l.ARN = strings.Replace(b.ARN, ":loadbalancer/", ":listener/", 1) + "/" + c.w.Hex("", 16)
	sc.Listeners[l.ARN] = l
	c.Make(l.ARN)
	s.startForwarded(c.scope(), sc, l.Actions)
	return &elb.CreateListenerOutput{Listeners: []types.Listener{l.sdk()}}, nil
}

// startForwarded lets the health checks of the target groups of actions begin.
func (s *elbService) startForwarded(in scope, sc *ELBScope, actions []ELBAction) {
	for _, a := range actions {
		for _, g := range a.Groups {
			if tg := sc.Groups[g.ARN]; tg != nil {
				s.startChecks(in, tg)
			}
		}
	}
}

func sdkActions(actions []ELBAction) []types.Action {
	out := []types.Action{}
	for _, a := range actions {
		x := types.Action{Type: types.ActionTypeEnum(a.Type)}
		if a.Order > 0 {
			x.Order = new(a.Order)
		}
		if len(a.Groups) > 0 {
			fc := &types.ForwardActionConfig{TargetGroupStickinessConfig: &types.TargetGroupStickinessConfig{Enabled: new(deref(a.Sticky)), DurationSeconds: a.Duration}}
			for _, g := range a.Groups {
				fc.TargetGroups = append(fc.TargetGroups, types.TargetGroupTuple{TargetGroupArn: new(g.ARN), Weight: new(g.Weight)})
			}
			x.ForwardConfig = fc
			if a.Simple != "" {
				x.TargetGroupArn = new(a.Simple)
			}
		}
		if a.Redirect != nil {
			x.RedirectConfig = &types.RedirectActionConfig{Protocol: new(a.Redirect["Protocol"]), Port: new(a.Redirect["Port"]), Host: new(a.Redirect["Host"]),
				Path: new(a.Redirect["Path"]), Query: new(a.Redirect["Query"]), StatusCode: types.RedirectActionStatusCodeEnum(a.Redirect["StatusCode"])}
		}
		if a.Fixed != nil {
			x.FixedResponseConfig = &types.FixedResponseActionConfig{StatusCode: new(a.Fixed["StatusCode"]), ContentType: new(a.Fixed["ContentType"]), MessageBody: new(a.Fixed["MessageBody"])}
		}
		out = append(out, x)
	}
	return out
}

func (l *ELBListener) sdk() types.Listener {
	out := types.Listener{ListenerArn: &l.ARN, LoadBalancerArn: &l.Balancer, Port: &l.Port, Protocol: types.ProtocolEnum(l.Protocol), DefaultActions: sdkActions(l.Actions)}
	if len(l.Certificates) > 0 {
		out.Certificates = []types.Certificate{{CertificateArn: new(l.Certificates[0])}}
		out.SslPolicy = &l.Policy
		if l.Protocol == "HTTPS" {
			out.MutualAuthentication = &types.MutualAuthenticationAttributes{Mode: new("off")}
		}
	}
	if len(l.Alpn) > 0 {
		out.AlpnPolicy = l.Alpn
	}
	return out
}

func (s *elbService) describeListeners(c *reqCtx, in *elb.DescribeListenersInput) (*elb.DescribeListenersOutput, error) {
	sc, all := s.state.in(c.scope()), []types.Listener{}
	if len(in.ListenerArns) > 0 {
		for _, arn := range in.ListenerArns {
			l, err := s.listener(c, &arn)
			if err != nil {
				return nil, err
			}
			all = append(all, l.sdk())
		}
		return &elb.DescribeListenersOutput{Listeners: all}, nil
	}
	if in.LoadBalancerArn == nil {
		return nil, failValidation("You must specify either listener ARNs or a load balancer ARN")
	}
	b, err := s.balancer(c, in.LoadBalancerArn)
	if err != nil {
		return nil, err
	}
	for _, arn := range sortedKeys(sc.Listeners) {
		if l := sc.Listeners[arn]; l.Balancer == b.ARN && c.visible(l.ARN, l.Created, true, "listener", tagValues(l.Tags)) {
			all = append(all, l.sdk())
		}
	}
	page, next, err := elbPage(c, all, in.Marker, in.PageSize)
	return &elb.DescribeListenersOutput{Listeners: page, NextMarker: next}, err
}

func (s *elbService) modifyListener(c *reqCtx, in *elb.ModifyListenerInput) (*elb.ModifyListenerOutput, error) {
	l, err := s.listener(c, in.ListenerArn)
	if err != nil {
		return nil, err
	}
	sc := s.state.in(c.scope())
	b := sc.Balancers[l.Balancer]
	next := *l
	if in.Port != nil && *in.Port != l.Port {
		for _, other := range sc.Listeners {
			if other.Balancer == l.Balancer && other.Port == *in.Port {
				return nil, failValidation("Listener port '%d' is already in use", *in.Port)
			}
		}
		next.Port = *in.Port
	}
	if in.Protocol != "" {
		next.Protocol = string(in.Protocol)
		if next.Protocol == "HTTP" || next.Protocol == "TCP" {
			next.Policy, next.Certificates = "", nil
		}
	}
	if in.SslPolicy != nil {
		next.Policy = *in.SslPolicy
	}
	if len(in.Certificates) > 0 {
		next.Certificates = []string{deref(in.Certificates[0].CertificateArn)}
	}
	if err := s.checkListener(c, b, next.Protocol, next.Policy, next.Certificates); err != nil {
		return nil, err
	}
	if len(next.Certificates) > 0 && next.Policy == "" {
		next.Policy = "ELBSecurityPolicy-2016-08"
	}
	if len(in.DefaultActions) > 0 {
		if next.Actions, err = s.checkActions(c, b, next.Protocol, in.DefaultActions); err != nil {
			return nil, err
		}
	}
	*l = next
	s.startForwarded(c.scope(), sc, l.Actions)
	return &elb.ModifyListenerOutput{Listeners: []types.Listener{l.sdk()}}, nil
}

func (s *elbService) deleteListener(c *reqCtx, in *elb.DeleteListenerInput) (*elb.DeleteListenerOutput, error) {
	l, err := s.listener(c, in.ListenerArn)
	if err != nil {
		return nil, err
	}
	s.dropListener(s.state.in(c.scope()), l.ARN)
	return &elb.DeleteListenerOutput{}, nil
}

func (s *elbService) describeListenerCertificates(c *reqCtx, in *elb.DescribeListenerCertificatesInput) (*elb.DescribeListenerCertificatesOutput, error) {
	l, err := s.listener(c, in.ListenerArn)
	if err != nil {
		return nil, err
	}
	all := []types.Certificate{}
	for i, arn := range l.Certificates {
		all = append(all, types.Certificate{CertificateArn: new(arn), IsDefault: new(i == 0)})
	}
	page, next, err := elbPage(c, all, in.Marker, in.PageSize)
	return &elb.DescribeListenerCertificatesOutput{Certificates: page, NextMarker: next}, err
}

func (s *elbService) describeListenerAttributes(c *reqCtx, in *elb.DescribeListenerAttributesInput) (*elb.DescribeListenerAttributesOutput, error) {
	l, err := s.listener(c, in.ListenerArn)
	if err != nil {
		return nil, err
	}
	out := &elb.DescribeListenerAttributesOutput{Attributes: []types.ListenerAttribute{}}
	if l.Protocol == "TCP" {
		out.Attributes = append(out.Attributes, types.ListenerAttribute{Key: new("tcp.idle_timeout.seconds"), Value: new("350")})
	}
	if l.Protocol == "HTTP" || l.Protocol == "HTTPS" {
		out.Attributes = append(out.Attributes, types.ListenerAttribute{Key: new("routing.http.response.server.enabled"), Value: new("true")})
	}
	return out, nil
}
