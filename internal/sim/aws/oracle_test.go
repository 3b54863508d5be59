package aws

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// A recording is a sequence of requests with what the real AWS answered to such requests. The answers were recorded as
// the SDK parsed them, without the requests, so the requests here are made to fit. Compared are the status, the error
// code and text, and which members an answer has; not IDs, times and the like.
type recording struct {
	Source, Commit, Recorded, Service string
	Steps                             []recordedStep
}

type recordedStep struct {
	Operation, Note string
	Service         string // of a step of another service
	Input           map[string]any
	Method, Path    string // REST
	Body            string
	Status          int
	Code            string
	Message         *string
	Data            map[string]any
	// Newer are members that AWS has added since.
	Newer []string
	// Save keeps a value of the answer, by its path, for ${…} in later steps.
	Save map[string]string
	// Step moves the clock before the request, in seconds.
	Step int
}

func TestRecordings(t *testing.T) {
	files, err := filepath.Glob("testdata/recordings/*/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recordings: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(strings.TrimPrefix(file, "testdata/recordings/"), ".json")
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var rec recording
		if err := json.Unmarshal(raw, &rec); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if rec.Service == "" || wires[rec.Service] == nil {
			continue // another test replays it
		}
		t.Run(name, func(t *testing.T) { replay(t, rec) })
	}
}

func replay(t *testing.T, rec recording) {
	r := newRig(t, immediate)
	// The accounts of the recordings had no databases yet.
	if _, err := r.w.RemoveObject("arn:aws:iam::" + testAccount + ":role/aws-service-role/rds.amazonaws.com/AWSServiceRoleForRDS"); err != nil {
		t.Fatal(err)
	}
	vars := layNetwork(t, r)
	for i, st := range rec.Steps {
		r.w.Step(time.Duration(st.Step) * time.Second)
		where := fmt.Sprintf("step %d, %s", i+1, st.Operation)
		service := orText(st.Service, rec.Service)
		status, doc := wires[service](t, r, service, expand(st, vars))
		if status != st.Status {
			t.Fatalf("%s: status %d, want %d; answer %v", where, status, st.Status, doc)
		}
		if st.Code != "" {
			code, message := errorOf(doc)
			if code != st.Code {
				t.Errorf("%s: code %s, want %s", where, code, st.Code)
			}
			if st.Message != nil {
				if want := pattern(substitute(*st.Message, vars)); !want.MatchString(message) {
					t.Errorf("%s: message %q, want %q", where, message, *st.Message)
				}
			}
			continue
		}
		if st.Data != nil {
			compare(t, where, st.Data, doc, st.Newer)
		}
		for name, path := range st.Save {
			vars[name] = fmt.Sprint(dig(t, doc, path))
		}
	}
}

// layNetwork makes a VPC with two subnets in two zones, for services that need one.
func layNetwork(t *testing.T, r *rig) map[string]string {
	t.Helper()
	c := ec2.NewFromConfig(r.cfg)
	text := func(s string) *string { return &s }
	vpc := must(c.CreateVpc(r.ctx(), &ec2.CreateVpcInput{CidrBlock: text("10.0.0.0/16")}))(t).Vpc.VpcId
	vars := map[string]string{"vpc": *vpc, "region": r.cfg.Region, "account": testAccount}
	for i, z := range []string{"a", "b"} {
		zone := r.cfg.Region + z
		s := must(c.CreateSubnet(r.ctx(), &ec2.CreateSubnetInput{VpcId: vpc, CidrBlock: text(fmt.Sprintf("10.0.%d.0/24", i)), AvailabilityZone: &zone}))(t)
		vars["subnet"+strings.ToUpper(z)] = *s.Subnet.SubnetId
	}
	gw := must(c.CreateInternetGateway(r.ctx(), &ec2.CreateInternetGatewayInput{}))(t).InternetGateway.InternetGatewayId
	must(c.AttachInternetGateway(r.ctx(), &ec2.AttachInternetGatewayInput{InternetGatewayId: gw, VpcId: vpc}))(t)
	for _, name := range []string{"lb", "vm"} {
		g := must(c.CreateSecurityGroup(r.ctx(), &ec2.CreateSecurityGroupInput{GroupName: text(name), Description: text(name), VpcId: vpc}))(t)
		vars["group"+strings.ToUpper(name)] = *g.GroupId
	}
	images := must(c.DescribeImages(r.ctx(), &ec2.DescribeImagesInput{Owners: []string{"099720109477"}, Filters: []ec2types.Filter{
		{Name: text("architecture"), Values: []string{"x86_64"}}, {Name: text("name"), Values: []string{"*24.04*"}}}}))(t)
	vars["image"] = *images.Images[0].ImageId
	template := must(c.CreateLaunchTemplate(r.ctx(), &ec2.CreateLaunchTemplateInput{LaunchTemplateName: text("web"), LaunchTemplateData: &ec2types.RequestLaunchTemplateData{
		ImageId: images.Images[0].ImageId, InstanceType: ec2types.InstanceTypeT3Micro, SecurityGroupIds: []string{vars["groupVM"]}}}))(t)
	vars["template"] = *template.LaunchTemplate.LaunchTemplateId
	return vars
}

// expand puts saved values into a step.
func expand(st recordedStep, vars map[string]string) recordedStep {
	raw, err := json.Marshal(st)
	if err != nil {
		panic(err) // it was read from JSON
	}
	var out recordedStep
	if err := json.Unmarshal([]byte(substitute(string(raw), vars)), &out); err != nil {
		panic(err)
	}
	return out
}

func substitute(s string, vars map[string]string) string {
	for k, v := range vars {
		s = strings.ReplaceAll(s, "${"+k+"}", v)
	}
	return s
}

// pattern makes a regular expression of a recorded message, in which <…> stands for anything.
func pattern(message string) *regexp.Regexp {
	quoted := regexp.QuoteMeta(message)
	return regexp.MustCompile("^" + regexp.MustCompile(`<[^<>]*>`).ReplaceAllString(quoted, ".+") + "$")
}

// wires send a step over the protocol of a service and answer the status and the parsed answer.
var wires = map[string]func(*testing.T, *rig, string, recordedStep) (int, map[string]any){
	"iam": queryWire, "sts": queryWire, "elasticloadbalancing": queryWire, "autoscaling": queryWire,
	"ssm": jsonWire, "servicequotas": jsonWire, "acm": jsonWire, "kms": jsonWire, "secretsmanager": jsonWire, "route53": restWire, "eks": restJSONWire,
}

var wireVersions = map[string]string{"iam": "2010-05-08", "sts": "2011-06-15", "elasticloadbalancing": "2015-12-01", "autoscaling": "2011-01-01"}

var wireTargets = map[string]string{"ssm": "AmazonSSM", "servicequotas": "ServiceQuotasV20190624", "acm": "CertificateManager", "kms": "TrentService", "secretsmanager": "secretsmanager"}

func send(t *testing.T, r *rig, service, method, path, contentType, target string, body []byte) (int, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(r.ctx(), method, *r.cfg.BaseEndpoint+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC()
	req.Header.Set("X-Amz-Date", now.Format("20060102T150405Z"))
	req.Header.Set("Authorization", fmt.Sprintf("AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/%s/%s/%s/aws4_request, SignedHeaders=host, Signature=00", now.Format("20060102"), r.cfg.Region, service))
	req.Header.Set("Content-Type", contentType)
	if target != "" {
		req.Header.Set("X-Amz-Target", target)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, answer
}

func queryWire(t *testing.T, r *rig, service string, st recordedStep) (int, map[string]any) {
	t.Helper()
	form := url.Values{"Action": {st.Operation}, "Version": {wireVersions[service]}}
	flatten("", st.Input, ".member", form)
	status, body := send(t, r, service, "POST", "/", "application/x-www-form-urlencoded", "", []byte(form.Encode()))
	root, err := parseXML(body)
	if err != nil {
		t.Fatalf("%s: %v: %s", st.Operation, err, body)
	}
	if status != 200 {
		return status, treeOf(root).(map[string]any)
	}
	if result := root.child(st.Operation + "Result"); result != nil {
		if m, ok := treeOf(result).(map[string]any); ok {
			return status, m
		}
	}
	return status, map[string]any{}
}

func jsonWire(t *testing.T, r *rig, service string, st recordedStep) (int, map[string]any) {
	t.Helper()
	body, err := json.Marshal(st.Input)
	if err != nil {
		t.Fatal(err)
	}
	status, answer := send(t, r, service, "POST", "/", "application/x-amz-json-1.1", wireTargets[service]+"."+st.Operation, body)
	return status, jsonAnswer(t, st, answer)
}

func restJSONWire(t *testing.T, r *rig, service string, st recordedStep) (int, map[string]any) {
	t.Helper()
	status, answer := send(t, r, service, st.Method, st.Path, "application/json", "", []byte(st.Body))
	return status, jsonAnswer(t, st, answer)
}

// jsonAnswer parses an answer; some operations answer nothing at all.
func jsonAnswer(t *testing.T, st recordedStep, answer []byte) map[string]any {
	t.Helper()
	var doc map[string]any
	if len(answer) == 0 {
		return doc
	}
	if err := json.Unmarshal(answer, &doc); err != nil {
		t.Fatalf("%s: %v: %s", st.Operation, err, answer)
	}
	return doc
}

func restWire(t *testing.T, r *rig, service string, st recordedStep) (int, map[string]any) {
	t.Helper()
	status, body := send(t, r, service, st.Method, st.Path, "application/xml", "", []byte(st.Body))
	root, err := parseXML(body)
	if err != nil {
		t.Fatalf("%s: %v: %s", st.Operation, err, body)
	}
	if m, ok := treeOf(root).(map[string]any); ok {
		return status, m
	}
	return status, map[string]any{}
}

// treeOf turns an element into maps, lists and texts. An element whose children all have the name of an item of its own
// is a list; an empty one may be anything and becomes an empty text.
func treeOf(n *xmlNode) any {
	if len(n.kids) == 0 {
		return n.text.String()
	}
	list := slices.IndexFunc(n.kids, func(k *xmlNode) bool { return k.name != "member" && k.name+"s" != n.name }) < 0
	if list {
		var out []any
		for _, k := range n.kids {
			out = append(out, treeOf(k))
		}
		return out
	}
	out := map[string]any{}
	for _, k := range n.kids {
		out[k.name] = treeOf(k)
	}
	return out
}

func errorOf(doc map[string]any) (code, message string) {
	if e, ok := doc["Error"].(map[string]any); ok {
		return fmt.Sprint(e["Code"]), fmt.Sprint(e["Message"])
	}
	message, _ = doc["message"].(string)
	if message == "" {
		message, _ = doc["Message"].(string)
	}
	return fmt.Sprint(doc["__type"]), message
}

// dig finds a value by a path such as LoadBalancers.0.LoadBalancerArn.
func dig(t *testing.T, v any, path string) any {
	t.Helper()
	for part := range strings.SplitSeq(path, ".") {
		switch x := v.(type) {
		case map[string]any:
			v = x[part]
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i >= len(x) {
				t.Fatalf("no %s in the answer", path)
			}
			v = x[i]
		}
	}
	if v == nil {
		t.Fatalf("no %s in the answer", path)
	}
	return v
}

// compare checks that an answer has the members that the real one had, and no others.
func compare(t *testing.T, where string, want, got any, newer []string) {
	t.Helper()
	switch w := want.(type) {
	case map[string]any:
		if text, ok := got.(string); ok && len(w) > 0 {
			// A policy document, which the SDK had decoded.
			if decoded, err := url.QueryUnescape(text); err == nil && json.Valid([]byte(decoded)) && strings.HasPrefix(decoded, "{") {
				return
			}
		}
		g, ok := got.(map[string]any)
		if !ok {
			if len(w) > 0 || got == nil {
				t.Errorf("%s: %v, want a structure with %v", where, got, keysOf(w))
			}
			return
		}
		for _, k := range keysOf(w) {
			if _, ok := g[k]; !ok {
				t.Errorf("%s: no %s in the answer", where, k)
				continue
			}
			compare(t, where+"."+k, w[k], g[k], newer)
		}
		for _, k := range keysOf(g) {
			if _, ok := w[k]; !ok && !slices.Contains(newer, k) {
				t.Errorf("%s: the answer has %s, the real one has not", where, k)
			}
		}
	case []any:
		if len(w) == 0 {
			if list, ok := got.([]any); ok && len(list) > 0 {
				t.Errorf("%s: %v, want an empty list", where, got)
			}
			return
		}
		g, ok := got.([]any)
		if !ok || len(g) == 0 {
			t.Errorf("%s: %v, want a list like %v", where, got, w)
			return
		}
		for i := range min(len(w), len(g)) {
			compare(t, where+"."+strconv.Itoa(i), w[i], g[i], newer)
		}
	case bool:
		if fmt.Sprint(got) != strconv.FormatBool(w) {
			t.Errorf("%s: %v, want %v", where, got, w)
		}
	default:
		if _, ok := got.(map[string]any); ok {
			t.Errorf("%s: a structure, want a value like %v", where, w)
		}
	}
}

func keysOf(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
