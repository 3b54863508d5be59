package aws

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// tlsPolicy is TLS 1.2 and 1.3 with forward secrecy only ("Security policies
// for your Application Load Balancer"). It is one that public rule sets accept;
// the post-quantum ones are not in all of their lists yet.
const tlsPolicy = "ELBSecurityPolicy-TLS13-1-2-2021-06"

// A listening is one listener that a load balancer needs.
type listening struct {
	key      string
	port     int32
	protocol elbtypes.ProtocolEnum
	redirect bool
	tls      bool
}

// listenersOf are the listeners of a load balancer: plain HTTP if it was asked
// for by name, else HTTPS and a redirect to it; one TCP or TLS port for NLBs.
func listenersOf(lb job.LoadBalancer) []listening {
	switch {
	case lb.Type == job.LBTCP && lb.Certificate != "":
		return []listening{{key: "tls", port: int32(lb.Port), protocol: elbtypes.ProtocolEnumTls, tls: true}}
	case lb.Type == job.LBTCP:
		return []listening{{key: "tcp", port: int32(lb.Port), protocol: elbtypes.ProtocolEnumTcp}}
	case lb.Certificate != "":
		return []listening{
			{key: "https", port: 443, protocol: elbtypes.ProtocolEnumHttps, tls: true},
			{key: "http", port: 80, protocol: elbtypes.ProtocolEnumHttp, redirect: true},
		}
	}
	return []listening{{key: "http", port: 80, protocol: elbtypes.ProtocolEnumHttp}}
}

// EnsureListener makes the listeners, and is done when the targets are healthy.
func (p *Provider) EnsureListener(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
	lb, err := lbSpec(r.Job)
	if err != nil {
		return err
	}
	infra := &r.Job.Config.InfraConfig
	wanted := listenersOf(lb)
	ids := make([]string, len(wanted))
	var parts []func(context.Context) error
	for i, l := range wanted {
		parts = append(parts, func(ctx context.Context) (err error) {
			ids[i], err = r.Ensure(ctx, p.listener(r, lb, l))
			return err
		})
	}
	err = pipeline.All(ctx, parts...)
	if r.Mode != pipeline.Verify {
		infra.ListenerIDs = slices.DeleteFunc(ids, func(id string) bool { return id == "" })
	}
	if err != nil {
		return visible(r, "the listeners", err)
	}
	if r.Mode == pipeline.Plan || infra.TargetGroupID == "" {
		return nil
	}
	for _, l := range wanted {
		if err := confirmOnce(ctx, r, p.listener(r, lb, l)); err != nil {
			return err
		}
	}
	return p.awaitHealthy(ctx, r, lb)
}

// RemoveListener removes the listeners that the job has made.
func (p *Provider) RemoveListener(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
	lb, err := lbSpec(r.Job)
	if err != nil {
		return err
	}
	all := map[string]listening{}
	for _, o := range r.Objects() {
		if o.Kind == kindListener {
			all[o.Key] = listening{key: o.Key}
		}
	}
	for _, l := range listenersOf(lb) {
		all[l.key] = l
	}
	var parts []func(context.Context) error
	for _, key := range slices.Sorted(maps.Keys(all)) {
		parts = append(parts, func(ctx context.Context) error { return r.Remove(ctx, p.listener(r, lb, all[key])) })
	}
	return pipeline.All(ctx, parts...)
}

func (p *Provider) listenersAt(ctx context.Context, lbARN string, arns ...string) ([]elbtypes.Listener, error) {
	in := &elb.DescribeListenersInput{ListenerArns: arns}
	if len(arns) == 0 {
		in.LoadBalancerArn = aws.String(lbARN)
	}
	out, err := p.elb.DescribeListeners(ctx, in)
	if err != nil {
		return nil, err
	}
	return out.Listeners, nil // a load balancer has 50 at most: one page
}

// listenerInput is what a listener is made with.
func listenerInput(r *pipeline.Run, lb job.LoadBalancer, l listening, listenerName string) *elb.CreateListenerInput {
	infra := r.Job.Config.InfraConfig
	in := &elb.CreateListenerInput{
		LoadBalancerArn: aws.String(infra.LoadBalancerID), Port: aws.Int32(l.port), Protocol: l.protocol,
		DefaultActions: []elbtypes.Action{{Type: elbtypes.ActionTypeEnumForward, TargetGroupArn: aws.String(infra.TargetGroupID)}},
		Tags:           elbTags(tags(r, l.key, listenerName)),
	}
	if l.redirect {
		in.DefaultActions = []elbtypes.Action{{Type: elbtypes.ActionTypeEnumRedirect, RedirectConfig: &elbtypes.RedirectActionConfig{
			Protocol: aws.String("HTTPS"), Port: aws.String("443"), StatusCode: elbtypes.RedirectActionStatusCodeEnumHttp301,
		}}}
	}
	if l.tls {
		in.SslPolicy = aws.String(tlsPolicy)
		in.Certificates = []elbtypes.Certificate{{CertificateArn: aws.String(lb.Certificate)}}
	}
	return in
}

// listener is one of the job's listeners. Creating it again with the same
// settings succeeds and makes nothing.
func (p *Provider) listener(r *pipeline.Run, lb job.LoadBalancer, l listening) pipeline.Resource {
	infra := r.Job.Config.InfraConfig
	listenerName := name(r, l.key, 63)
	in := listenerInput(r, lb, l, listenerName)
	x := pipeline.Resource{Kind: kindListener, Key: l.key, Name: listenerName, Args: in, Tokened: true}
	x.Get = func(ctx context.Context, arn string) (pipeline.Seen, error) {
		found, err := p.listenersAt(ctx, "", arn)
		if err != nil {
			return pipeline.Seen{}, err
		}
		for _, have := range found {
			if aws.ToString(have.ListenerArn) == arn {
				s := pipeline.Seen{ID: arn, Status: pipeline.Ready}
				if !r.Down {
					s.Aspects = p.listenerAspects(have, in)
				}
				return s, nil
			}
		}
		return pipeline.Seen{}, absent("Elastic Load Balancing v2", "DescribeListeners", arn)
	}
	x.Find = func(ctx context.Context) ([]pipeline.Seen, error) {
		if infra.LoadBalancerID == "" {
			return nil, nil
		}
		all, err := p.listenersAt(ctx, infra.LoadBalancerID)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(all, func(have elbtypes.Listener) bool { return aws.ToInt32(have.Port) == l.port })
		if i < 0 {
			return nil, nil
		}
		arn := aws.ToString(all[i].ListenerArn)
		owners, err := p.elbOwners(ctx, arn)
		if err != nil {
			return nil, err
		}
		if err := intendedTagsLate(r, kindListener, l.key, owners[arn]); err != nil {
			return nil, err
		}
		return []pipeline.Seen{{ID: arn, Owner: owners[arn], Status: pipeline.Pending}}, nil
	}
	x.Create = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		out, err := p.elb.CreateListener(ctx, in)
		if err != nil || len(out.Listeners) == 0 {
			return pipeline.Seen{}, badCertificate(err, lb.Certificate)
		}
		return pipeline.Seen{ID: aws.ToString(out.Listeners[0].ListenerArn), Owner: r.Job.ID, Status: pipeline.Ready}, nil
	}
	x.Delete = func(ctx context.Context, arn string) error {
		_, err := p.elb.DeleteListener(ctx, &elb.DeleteListenerInput{ListenerArn: aws.String(arn)})
		return err
	}
	return tidy(lookFirst(r, x))
}

// badCertificate names the field when the certificate is what is wrong. The
// error keeps its class beneath, so that the protocol knows that nothing was
// made.
func badCertificate(err error, arn string) error {
	var ce *pipeline.CloudError
	if !errors.As(err, &ce) || !strings.Contains(ce.Code, "Certificate") || ce.Class == pipeline.Unavailable {
		return err
	}
	return pipeline.Fatal("bad-certificate", fmt.Sprintf("the load balancer cannot use certificate %s: %s", arn, ce.Message),
		"Name a certificate that is issued, in this region and account; the job's load balancer can be detached and attached again with it.").On("config.spec.loadBalancer.certificate").From(ce)
}

// listenerAspects compares what a listener does with what it should do.
func (p *Provider) listenerAspects(have elbtypes.Listener, want *elb.CreateListenerInput) []pipeline.Aspect {
	done := false
	set := func(ctx context.Context) error {
		if done {
			return nil
		}
		_, err := p.elb.ModifyListener(ctx, &elb.ModifyListenerInput{
			ListenerArn: have.ListenerArn, Port: want.Port, Protocol: want.Protocol, DefaultActions: want.DefaultActions,
			SslPolicy: want.SslPolicy, Certificates: want.Certificates,
		})
		done = err == nil
		return err
	}
	out := []pipeline.Aspect{
		{Name: "listens on", Wanted: fmt.Sprintf("%s %d", want.Protocol, aws.ToInt32(want.Port)), Seen: fmt.Sprintf("%s %d", have.Protocol, aws.ToInt32(have.Port)), Set: set},
		{Name: "action", Wanted: actionText(want.DefaultActions), Seen: actionText(have.DefaultActions), Set: set},
	}
	// What an answer does not carry is not known; a TLS listener always has both.
	if want.SslPolicy != nil && have.SslPolicy != nil {
		out = append(out, pipeline.Aspect{Name: "TLS policy", Wanted: aws.ToString(want.SslPolicy), Seen: *have.SslPolicy, Set: set})
	}
	if want.SslPolicy != nil && len(have.Certificates) > 0 {
		out = append(out, pipeline.Aspect{Name: "certificate", Wanted: certificateText(want.Certificates), Seen: certificateText(have.Certificates), Set: set})
	}
	return out
}

func certificateText(all []elbtypes.Certificate) string {
	if len(all) == 0 {
		return "none"
	}
	return aws.ToString(all[0].CertificateArn)
}

func actionText(all []elbtypes.Action) string {
	var out []string
	for _, a := range all {
		switch {
		case a.TargetGroupArn != nil:
			out = append(out, "forward to "+*a.TargetGroupArn)
		case a.ForwardConfig != nil && len(a.ForwardConfig.TargetGroups) == 1:
			out = append(out, "forward to "+aws.ToString(a.ForwardConfig.TargetGroups[0].TargetGroupArn))
		case a.RedirectConfig != nil:
			out = append(out, fmt.Sprintf("redirect to %s %s", aws.ToString(a.RedirectConfig.Protocol), aws.ToString(a.RedirectConfig.Port)))
		default:
			out = append(out, string(a.Type))
		}
	}
	return strings.Join(out, ", ")
}
