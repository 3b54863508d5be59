package aws

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/sim"
)

var platformServices = []string{"iam", "sts", "ssm", "servicequotas", "route53", "elasticloadbalancing", "autoscaling", "acm"}

// Whatever is missing from a request, or of the wrong type, the answer is a refusal or an answer, never a crash.
func TestHostileRequests(t *testing.T) {
	f := populate(t)
	// The names of things that exist, with nothing else beside them.
	parents := map[string]any{"RoleName": "web", "InstanceProfileName": "web", "AutoScalingGroupName": "web", "InstanceId": f.inService(t)[0], "PolicyArn": ssmCore, "ServiceCode": "vpc",
		"ResourceType": "hostedzone", "Name": "AWS-RunShellScript"}
	for kind, names := range map[string][]string{"load-balancer": {"LoadBalancerArn"}, "target-group": {"TargetGroupArn"}, "listener": {"ListenerArn"}, "hosted-zone": {"HostedZoneId", "Id", "ResourceId"},
		"certificate": {"CertificateArn"}, "command": {"CommandId"}} {
		for _, o := range f.w.Objects(sim.ObjectFilter{Kind: kind, All: true}) {
			for _, n := range names {
				parents[n] = o.ID
			}
		}
	}
	f.w.Lock()
	defer f.w.Unlock()
	for _, service := range platformServices {
		a := f.cloud.apis[service]
		names := sortedKeys(a.ops)
		// What deletes comes last, so that there is something for the others to work on.
		slices.SortStableFunc(names, func(x, y string) int { return cmp.Compare(deletes(x), deletes(y)) })
		for _, name := range names {
			for what, params := range map[string]map[string]any{
				"nothing": {}, "empty texts": emptied(""), "unknown names": emptied("no-such-thing"), "only parents": parents,
			} {
				if err := attempt(f.cloud, a, name, params); err != nil {
					t.Errorf("%s %s with %s: %v", service, name, what, err)
				}
			}
		}
	}
}

func deletes(operation string) int {
	for _, verb := range []string{"Delete", "Remove", "Terminate", "Detach"} {
		if strings.HasPrefix(operation, verb) {
			return 1
		}
	}
	return 0
}

// emptied are parameters that many operations have, all with the same text.
func emptied(text string) map[string]any {
	one := map[string]any{"Key": text, "Value": text}
	out := map[string]any{"Tags": []any{one, one}, "TagKeys": []any{text}, "Targets": []any{map[string]any{"Id": text}}, "InstanceIds": []any{text},
		"DefaultActions": []any{map[string]any{"Type": text}}, "Actions": []any{map[string]any{"Type": "forward"}}, "Conditions": []any{map[string]any{"Field": text}},
		"ChangeBatch": map[string]any{"Changes": []any{map[string]any{"Action": text}}}, "VPC": map[string]any{"VPCId": text}, "AddTags": []any{one},
		"LaunchTemplate": map[string]any{}, "Attributes": []any{one}, "ResourceArns": []any{text}, "Names": []any{text}, "Parameters": map[string]any{"commands": []any{text}}}
	for _, k := range []string{"RoleName", "PolicyName", "PolicyArn", "PolicyDocument", "AssumeRolePolicyDocument", "InstanceProfileName", "UserName", "RoleArn", "RoleSessionName",
		"Name", "DocumentName", "CommandId", "InstanceId", "ServiceCode", "QuotaCode", "HostedZoneId", "Id", "ResourceType", "ResourceId", "DNSName", "LoadBalancerArn", "TargetGroupArn",
		"ListenerArn", "RuleArn", "AutoScalingGroupName", "VPCZoneIdentifier", "CertificateArn", "DomainName", "Marker", "NextToken", "CallerReference", "Path", "AWSServiceName"} {
		out[k] = text
	}
	return out
}

// attempt carries an operation out and answers what must not happen: a panic, or an error that is no refusal.
func attempt(c *Cloud, a *api, name string, params map[string]any) (bad error) {
	defer func() {
		if p := recover(); p != nil {
			bad = fmt.Errorf("panic: %v", p)
		}
	}()
	r := &request{Call: &sim.Call{Cloud: "aws", Service: a.service, Operation: name, Account: testAccount, Region: "us-east-1", Mutating: a.mutating(name)},
		cloud: c, Form: url.Values{}, Who: Identity{Account: testAccount, AccessKey: "test"}, id: newRequestID()}
	if err := r.setInput(a, params); err != nil {
		return err
	}
	_, err := a.ops[name](r)
	var refusal *Error
	if err != nil && !errors.As(err, &refusal) {
		return err
	}
	return nil
}

func TestMalformedBodies(t *testing.T) {
	r := newRig(t, immediate)
	for _, tc := range []struct{ service, method, path, contentType, target, body, code string }{
		{"ssm", "POST", "/", "application/x-amz-json-1.1", "AmazonSSM.GetParameter", `{"Name": 7}`, "SerializationException"},
		{"ssm", "POST", "/", "application/x-amz-json-1.1", "AmazonSSM.GetParameter", `[`, "SerializationException"},
		{"ssm", "POST", "/", "application/x-amz-json-1.1", "AmazonSSM.NoSuchOperation", `{}`, "UnknownOperationException"},
		{"iam", "POST", "/", "application/x-www-form-urlencoded", "", "Action=ListRoles&Version=2010-05-08&MaxItems=many", "MalformedInput"},
		{"iam", "POST", "/", "application/x-www-form-urlencoded", "", "Action=NoSuch&Version=2010-05-08", "InvalidAction"},
		{"route53", "POST", "/2013-04-01/hostedzone", "application/xml", "", "<CreateHostedZoneRequest><Name>x", "MalformedInput"},
		{"route53", "GET", "/2013-04-01/nothing", "application/xml", "", "", "UnknownOperationException"},
	} {
		status, body := send(t, r, tc.service, tc.method, tc.path, tc.contentType, tc.target, []byte(tc.body))
		if status < 400 || status >= 500 || !strings.Contains(string(body), tc.code) {
			t.Errorf("%s %s %s: %d %s, want %s", tc.service, tc.path, tc.body, status, body, tc.code)
		}
	}
}
