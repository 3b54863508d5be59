package aws

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/sim"
)

func (l *lab) vpcs(ctx context.Context, filters ...types.Filter) ([]types.Vpc, error) {
	out, err := l.client.DescribeVpcs(ctx, &ec2.DescribeVpcsInput{Filters: filters})
	if err != nil {
		return nil, err
	}
	return out.Vpcs, nil
}

func (l *lab) newVpc(ctx context.Context) (string, error) {
	out, err := l.client.CreateVpc(ctx, &ec2.CreateVpcInput{CidrBlock: awssdk.String("10.0.0.0/16"), TagSpecifications: tagSpecs("vpc", "owner", "job-1")})
	if err != nil {
		return "", err
	}
	return *out.Vpc.VpcId, nil
}

func mine() types.Filter {
	return types.Filter{Name: awssdk.String("tag:owner"), Values: []string{"job-1"}}
}

// control is the control API of a lab.
func (l *lab) control() *httptest.Server {
	srv := httptest.NewServer(l.world.Control())
	l.Cleanup(srv.Close)
	return srv
}

func ask(t *testing.T, method, url, body string) (int, map[string]any) {
	t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatalf("%s %s: %v in %s", method, url, err, b)
	}
	return resp.StatusCode, out
}

// The faults that concern every request, on the create and the look-up of a VPC. made says whether a VPC exists after.
func TestFaultsOnRequests(t *testing.T) {
	for _, tc := range []struct {
		name, fault string
		code        string // of the refused create; "-" means that no answer comes
		made        int
		done        bool // in the books
	}{
		{"error", `{"kind":"error","service":"ec2","operation":"CreateVpc","code":"InternalError","status":500}`, "InternalError", 0, false},
		{"error with a code of its own", `{"kind":"error","operation":"CreateVpc","code":"UnauthorizedOperation","status":403,"message":"no"}`, "UnauthorizedOperation", 0, false},
		{"lost reply", `{"kind":"lost_reply","operation":"Create*"}`, "-", 1, true},
		{"throttle", `{"kind":"throttle","mutating":true}`, "RequestLimitExceeded", 0, false},
		{"hang", `{"kind":"hang","operation":"CreateVpc","seconds":0.01}`, "-", 0, false},
		{"hang after the change", `{"kind":"hang","operation":"CreateVpc","seconds":0.01,"mode":"after"}`, "-", 1, true},
		{"swallow", `{"kind":"swallow","operation":"CreateVpc"}`, "", 0, false},
		{"raw", `{"kind":"raw","operation":"CreateVpc","status":403,"body":"<html>no</html>","contentType":"text/html"}`, "UnknownError", 0, false},
		{"another operation", `{"kind":"error","operation":"CreateSubnet"}`, "", 1, true},
		{"another match", `{"kind":"error","match":"10.1.0.0/16"}`, "", 1, true},
		{"a match", `{"kind":"error","match":"10.0.0.0/16","code":"X"}`, "X", 0, false},
		{"after", `{"kind":"error","operation":"CreateVpc","after":1}`, "", 1, true},
		{"another region", `{"kind":"error","region":"eu-west-1"}`, "", 1, true},
		{"delay", `{"kind":"delay","operation":"CreateVpc","seconds":0.01}`, "", 1, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx := context.Background()
			l := newLab(t, atOnce)
			if status, out := ask(t, "POST", l.control().URL+"/_sim/faults", tc.fault); status != 200 {
				t.Fatalf("placing the fault: %d %v", status, out)
			}
			_, err := l.newVpc(ctx)
			got := code(err)
			if strings.HasPrefix(got, "not an API error") {
				got = "-"
			}
			if got != tc.code {
				t.Errorf("create: %q (%v), want %q", got, err, tc.code)
			}
			found := ok(l.vpcs(ctx, mine()))
			if len(found) != tc.made {
				t.Errorf("%d VPCs after, want %d", len(found), tc.made)
			}
			books := l.world.Books(sim.BookFilter{Operation: "CreateVpc"})
			if len(books) != 1 || books[0].Done != tc.done || !books[0].Mutating || books[0].Account != "123456789012" {
				t.Errorf("books: %+v", books)
			}
			// A fault without a count hits once.
			if _, err := l.newVpc(ctx); err != nil && tc.name != "after" {
				t.Errorf("the second create: %v", err)
			}
		})
	}
}

// An undone call must leave nothing at all behind, not even a route in a table that was there before.
func TestSwallowedDelete(t *testing.T) {
	ctx := context.Background()
	l := newLab(t, atOnce)
	n := l.build(ctx)
	before := l.world.Snapshot()
	ok(l.world.AddFault(sim.Fault{Kind: sim.FaultSwallow, Operation: "*Delete*", Count: -1}))
	ok(l.client.DeleteRoute(ctx, &ec2.DeleteRouteInput{RouteTableId: &n.privateTable, DestinationCidrBlock: awssdk.String("0.0.0.0/0")}))
	ok(l.client.DeleteNatGateway(ctx, &ec2.DeleteNatGatewayInput{NatGatewayId: &n.nat}))
	l.step(time.Hour)
	if d := cmp.Diff(before, l.world.Snapshot()); d != "" {
		t.Errorf("swallowed deletes have changed (-before +after):\n%s", d)
	}
}

func TestHiddenAndFresh(t *testing.T) {
	ctx := context.Background()
	l := newLab(t, sim.Options{Seed: 3, ConsistencyByID: 2 * time.Second, ConsistencyByList: 8 * time.Second})
	id := ok(l.newVpc(ctx))
	byID := func() string {
		return code(second(l.client.DescribeVpcs(ctx, &ec2.DescribeVpcsInput{VpcIds: []string{id}})))
	}
	// Without a fault: after a while it is seen by ID, later by tag.
	var atID, atList time.Duration
	for d := time.Duration(0); d < 10*time.Second; d += 100 * time.Millisecond {
		if byID() == "" && atID == 0 {
			atID = d
		}
		if len(ok(l.vpcs(ctx, mine()))) == 1 && atList == 0 {
			atList = d
		}
		l.step(100 * time.Millisecond)
	}
	if atID == 0 || atList <= atID || atList > 8*time.Second {
		t.Errorf("visible by ID after %v, by tag after %v", atID, atList)
	}
	// A fault by count hides it from so many reads, one by time for so long.
	ok(l.world.AddFault(sim.Fault{Kind: sim.FaultHidden, Match: id, Count: 2}))
	if a, b, c := byID(), byID(), byID(); a != "InvalidVpcID.NotFound" || b != a || c != "" {
		t.Errorf("three reads of an object that is hidden from two: %q, %q, %q", a, b, c)
	}
	ok(l.world.AddFault(sim.Fault{Kind: sim.FaultHidden, Match: "job-1", Seconds: 60}))
	if n := len(ok(l.vpcs(ctx, mine()))); n != 0 {
		t.Errorf("a hidden object is listed")
	}
	l.step(61 * time.Second)
	if n := len(ok(l.vpcs(ctx, mine()))); n != 1 {
		t.Errorf("it is still hidden after its time")
	}
}

func TestPagesAndPageFaults(t *testing.T) {
	ctx := context.Background()
	l := newLab(t, atOnce)
	ids := map[string]bool{}
	read := func() (pages, empty int, err error) {
		ids = map[string]bool{}
		p := ec2.NewDescribeSubnetsPaginator(l.client, &ec2.DescribeSubnetsInput{MaxResults: awssdk.Int32(5)})
		for p.HasMorePages() && pages < 50 {
			out, err := p.NextPage(ctx)
			if err != nil {
				return pages, empty, err
			}
			pages++
			if len(out.Subnets) == 0 {
				empty++
			}
			for _, s := range out.Subnets {
				ids[*s.SubnetId] = true
			}
		}
		return pages, empty, nil
	}
	if pages, _, err := read(); err != nil || pages != 2 || len(ids) != 6 {
		t.Errorf("%d pages, %d subnets, %v; want 2 pages with the 6 default subnets", pages, len(ids), err)
	}
	ok(l.world.AddFault(sim.Fault{Kind: sim.FaultPage, Mode: "empty", Operation: "DescribeSubnets", Count: 2}))
	if pages, empty, err := read(); err != nil || pages != 4 || empty != 2 || len(ids) != 6 {
		t.Errorf("with two empty pages: %d pages, %d empty, %d subnets, %v", pages, empty, len(ids), err)
	}
	ok(l.world.AddFault(sim.Fault{Kind: sim.FaultPage, Mode: "repeat", Operation: "DescribeSubnets", Count: -1}))
	if pages, _, _ := read(); pages != 50 {
		t.Errorf("the same page for ever ended after %d pages", pages)
	}
	_, err := l.client.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{NextToken: awssdk.String("nonsense"), MaxResults: awssdk.Int32(5)})
	if l.world.ClearFaults(""); code(err) != "" && code(err) != "InvalidNextToken" {
		t.Errorf("a bad token: %v", err)
	}
	_, err = l.client.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{NextToken: awssdk.String("nonsense"), MaxResults: awssdk.Int32(5)})
	if code(err) != "InvalidNextToken" {
		t.Errorf("a bad token: %v", err)
	}
	l = newLab(t, sim.Options{ConsistencyByID: -1, ConsistencyByList: -1, EmptyPages: 1, PageSize: 2})
	if pages, empty, err := read(); err != nil || empty == 0 || pages != 2*empty || len(ids) != 6 {
		t.Errorf("a world with empty pages: %d pages, %d empty, %d subnets, %v", pages, empty, len(ids), err)
	}
}

func TestCapacityTransitionAndFailure(t *testing.T) {
	ctx := context.Background()
	l := newLab(t, atOnce)
	n := l.build(ctx)
	run := func() (*ec2.RunInstancesOutput, error) {
		return l.client.RunInstances(ctx, &ec2.RunInstancesInput{ImageId: awssdk.String(l.ubuntu(ctx)), InstanceType: types.InstanceTypeT3Micro, MinCount: awssdk.Int32(1), MaxCount: awssdk.Int32(1), SubnetId: &n.private})
	}
	ok(l.world.AddFault(sim.Fault{Kind: sim.FaultCapacity, Match: "us-east-1b", Count: -1}))
	ok(l.world.AddFault(sim.Fault{Kind: sim.FaultCapacity, Match: "us-east-1a t3.micro"}))
	if _, err := run(); code(err) != "InsufficientInstanceCapacity" || !strings.Contains(err.Error(), "us-east-1a") {
		t.Errorf("no capacity: %v", err)
	}
	ok(l.world.AddFault(sim.Fault{Kind: sim.FaultTransition, Operation: "RunInstances", State: "terminated", Code: "Client.VolumeLimitExceeded", Message: "Client.VolumeLimitExceeded: Volume limit exceeded"}))
	id := *ok(run()).Instances[0].InstanceId
	l.step(time.Second)
	if i := l.instance(ctx, id); i.State.Name != types.InstanceStateNameTerminated || *i.StateReason.Code != "Client.VolumeLimitExceeded" {
		t.Errorf("an instance that went from pending to terminated: %s %+v", i.State.Name, i.StateReason)
	}
	id = *ok(run()).Instances[0].InstanceId
	l.step(time.Minute)
	ok(l.world.AddFault(sim.Fault{Kind: sim.FaultTransition, Match: id, State: "stopped"}))
	if i := l.instance(ctx, id); i.State.Name != types.InstanceStateNameStopped {
		t.Errorf("an instance that was stopped behind its owner's back is %s", i.State.Name)
	}
	ok(l.world.AddFault(sim.Fault{Kind: sim.FaultOpFailed, Operation: "CreateNatGateway", Code: "InternalError", Message: "it broke"}))
	eip := *ok(l.client.AllocateAddress(ctx, &ec2.AllocateAddressInput{})).AllocationId
	nat := *ok(l.client.CreateNatGateway(ctx, &ec2.CreateNatGatewayInput{SubnetId: &n.public, AllocationId: &eip})).NatGateway.NatGatewayId
	l.step(2 * time.Minute)
	if g := ok(l.client.DescribeNatGateways(ctx, &ec2.DescribeNatGatewaysInput{NatGatewayIds: []string{nat}})).NatGateways[0]; g.State != types.NatGatewayStateFailed || *g.FailureMessage != "it broke" {
		t.Errorf("a NAT gateway whose creation failed: %s %v", g.State, g.FailureMessage)
	}
	ok(l.client.ReleaseAddress(ctx, &ec2.ReleaseAddressInput{AllocationId: &eip}))
}

// The state of every service must survive a round trip through a file.
func TestStateSurvives(t *testing.T) {
	s := newScene(t)
	dir := t.TempDir()
	stop := ok(s.world.Persist(t.Context(), dir))
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	l := newLab(t, atOnce)
	stop = ok(l.world.Persist(t.Context(), dir))
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	if d := cmp.Diff(s.world.Snapshot(), l.world.Snapshot()); d != "" {
		t.Errorf("the account differs (-before +after):\n%s", d)
	}
	if got := l.instance(context.Background(), s.publicInstance); got.State.Name != types.InstanceStateNameRunning {
		t.Errorf("the instance is %s", got.State.Name)
	}
	if !l.guest(s.publicInstance).Machine.SSMAgent() {
		t.Error("the inside of the instance is lost")
	}
}

// A hook can crash the caller before or after any call.
func TestCrashHook(t *testing.T) {
	ctx := context.Background()
	for _, phase := range []sim.Phase{sim.Before, sim.After} {
		l := newLab(t, atOnce)
		l.world.OnCall(func(p sim.Phase, c *sim.Call) error {
			if c.Operation == "CreateVpc" && p == phase {
				return errors.New("crash")
			}
			return nil
		})
		if _, err := l.newVpc(ctx); err == nil {
			t.Error("the call came back")
		}
		if n := len(ok(l.vpcs(ctx, mine()))); n != int(phase) {
			t.Errorf("phase %d: %d VPCs", phase, n)
		}
	}
}

func TestAccountsAndSignatures(t *testing.T) {
	ctx := context.Background()
	l := newLab(t, atOnce)
	ok(l.newVpc(ctx))
	other := l.as("AKIAI44QH8DHBEXAMPLE", "us-east-1")
	if n := len(ok(other.DescribeVpcs(ctx, &ec2.DescribeVpcsInput{Filters: []types.Filter{mine()}})).Vpcs); n != 0 {
		t.Error("another account sees the VPC")
	}
	if n := len(ok(l.as("test", "eu-west-1").DescribeVpcs(ctx, &ec2.DescribeVpcsInput{Filters: []types.Filter{mine()}})).Vpcs); n != 0 {
		t.Error("another region sees the VPC")
	}
	_, err := l.as("AKIAUNKNOWN", "us-east-1").DescribeVpcs(ctx, &ec2.DescribeVpcsInput{})
	if code(err) != "AuthFailure" {
		t.Errorf("an unknown access key: %v", err)
	}
	_, err = l.client.DescribeTrunkInterfaceAssociations(ctx, &ec2.DescribeTrunkInterfaceAssociationsInput{})
	if code(err) != "InvalidAction" {
		t.Errorf("an operation that is not there: %v", err)
	}
	if b := l.world.Books(sim.BookFilter{Operation: "DescribeTrunk*"}); len(b) != 1 || b[0].Code != "InvalidAction" {
		t.Errorf("it is not in the books: %+v", b)
	}
	old := time.Now().Add(-10 * time.Minute).UTC().Format("20060102T150405Z")
	req, err := http.NewRequest(http.MethodPost, l.url, strings.NewReader("Action=DescribeVpcs&Version=2016-11-15"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("X-Amz-Date", old)
	req.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=test/"+old[:8]+"/us-east-1/ec2/aws4_request, SignedHeaders=host, Signature=0")
	resp := ok(http.DefaultClient.Do(req))
	defer func() { _ = resp.Body.Close() }()
	if b, _ := io.ReadAll(resp.Body); !bytes.Contains(b, []byte("<Code>RequestExpired</Code>")) {
		t.Errorf("a signature ten minutes old: %s", b)
	}
}

func TestControlAPI(t *testing.T) {
	ctx := context.Background()
	l := newLab(t, atOnce)
	base := l.control().URL
	// Somebody else's VPC, then a change and a delete behind everybody's back.
	status, out := ask(t, "POST", base+"/_sim/objects", `{"action":"call","cloud":"aws","service":"ec2","operation":"CreateVpc","account":"123456789012","region":"us-east-1",
		"params":{"CidrBlock":"10.0.0.0/16","TagSpecification":[{"ResourceType":"vpc","Tag":[{"Key":"Name","Value":"theirs"}]}]}}`)
	if status != 200 {
		t.Fatalf("placing a VPC: %d %v", status, out)
	}
	made, _ := out["vpc"].(map[string]any)
	if status, out := ask(t, "POST", base+"/_sim/objects", `{"action":"call","cloud":"aws","service":"ec2","operation":"CreateSecurityGroup",
		"params":{"VpcId":"`+made["vpcId"].(string)+`","GroupName":"g","Description":"named as the SDK does","TagSpecifications":[{"ResourceType":"security-group","Tags":[{"Key":"a","Value":"b"}]}]}}`); status != 200 {
		t.Errorf("placing a group with the SDK's names: %d %v", status, out)
	}
	theirs := types.Filter{Name: awssdk.String("tag:Name"), Values: []string{"theirs"}}
	id := *ok(l.vpcs(ctx, theirs))[0].VpcId
	if status, out = ask(t, "POST", base+"/_sim/objects", `{"action":"set","id":"`+id+`","set":{"DNSHostnames":true,"Tags":[{"Key":"Name","Value":"changed"}]}}`); status != 200 {
		t.Errorf("changing it: %d %v", status, out)
	}
	if n := len(ok(l.vpcs(ctx, theirs))); n != 0 {
		t.Error("its tag has not changed")
	}
	if _, out = ask(t, "GET", base+"/_sim/objects?kind=vpc&owner=changed", ""); out["total"] != 1.0 {
		t.Errorf("objects by owner: %v", out)
	}
	if _, out = ask(t, "GET", base+"/_sim/residue?owner=changed", ""); out["total"] != 2.0 { // with the group in it
		t.Errorf("residue: %v", out)
	}
	if status, out = ask(t, "POST", base+"/_sim/objects", `{"action":"delete","id":"`+id+`"}`); status != 200 || out["gone"] != true {
		t.Errorf("deleting it: %d %v", status, out)
	}
	if _, out = ask(t, "GET", base+"/_sim/requests?mutating=false&operation=Describe*", ""); out["total"] != 2.0 || out["mutating"] != 0.0 {
		t.Errorf("requests: %v", out)
	}
	if status, out = ask(t, "POST", base+"/_sim/quotas", `{"cloud":"aws","service":"vpc","code":"L-F678F1CE","value":1}`); status != 200 {
		t.Errorf("setting a quota: %d %v", status, out)
	}
	if _, err := l.newVpc(ctx); code(err) != "VpcLimitExceeded" {
		t.Errorf("a VPC above the quota: %v", err)
	}
	now := l.world.Clock.Now()
	if _, out = ask(t, "POST", base+"/_sim/clock", `{"step":"90s","scale":10}`); l.world.Clock.Now().Sub(now) != 90*time.Second || out["scale"] != 10.0 {
		t.Errorf("clock: %v", out)
	}
	if status, _ = ask(t, "POST", base+"/_sim/reset", ""); status != 200 || len(l.world.Books(sim.BookFilter{})) != 0 {
		t.Error("reset left the books")
	}
	for _, bad := range []struct{ method, path, body, says string }{
		{"POST", "/_sim/faults", `{"kind":"explode"}`, "unknown fault kind"},
		{"POST", "/_sim/faults", `{"kind":"error","servise":"ec2"}`, "servise"},
		{"POST", "/_sim/faults", ``, "JSON object is needed"},
		{"POST", "/_sim/faults", `{"kind":"transition","match":"no-such-thing","state":"x"}`, "no object matches"},
		{"POST", "/_sim/faults", `{"kind":"page","mode":"upside-down"}`, "unknown mode"},
		{"POST", "/_sim/objects", `{"action":"delete","id":"vpc-none"}`, "no object"},
		{"POST", "/_sim/objects", `{"action":"call","cloud":"aws","service":"ec2","operation":"CreateMoon"}`, "no operation"},
		{"POST", "/_sim/objects", `{"action":"dance"}`, "unknown action"},
		{"POST", "/_sim/objects", `{"action":"call","cloud":"aws","service":"ec2","operation":"CreateVpc","params":{"CidrBlok":"10.0.0.0/16"}}`, "CidrBlok"},
		{"POST", "/_sim/clock", `{"step":-1}`, "backwards"},
		{"GET", "/_sim/requests?colour=red", ``, "colour"},
		{"GET", "/_sim/residue", ``, "owner"},
		{"PUT", "/_sim/faults", `{}`, "DELETE or GET or POST"},
		{"GET", "/_sim/nothing", ``, "no such path"},
	} {
		status, out := ask(t, bad.method, base+bad.path, bad.body)
		if text, _ := out["error"].(string); status < 400 || status > 499 || !strings.Contains(text, bad.says) {
			t.Errorf("%s %s %s: %d %v, want a 4xx that says %q", bad.method, bad.path, bad.body, status, out, bad.says)
		}
	}
}
