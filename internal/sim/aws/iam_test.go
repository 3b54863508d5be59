package aws

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	ststypes "github.com/aws/aws-sdk-go-v2/service/sts/types"

	"github.com/zopday/provisioner/internal/sim"
)

const ec2Trust = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},"Action":"sts:AssumeRole"}]}`

const ssmCore = "arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore"

func TestRoleLifecycle(t *testing.T) {
	r := newRig(t, immediate)
	c := iam.NewFromConfig(r.cfg)
	name := awssdk.String("web-role")
	made := must(c.CreateRole(r.ctx(), &iam.CreateRoleInput{
		RoleName: name, AssumeRolePolicyDocument: awssdk.String(ec2Trust), Description: awssdk.String("d"),
		Tags: []types.Tag{{Key: awssdk.String("owner"), Value: awssdk.String("job-1")}},
	}))(t)
	if got, want := *made.Role.Arn, "arn:aws:iam::"+testAccount+":role/web-role"; got != want {
		t.Errorf("ARN %s, want %s", got, want)
	}
	if made.Role.MaxSessionDuration != nil || made.Role.RoleLastUsed != nil {
		t.Error("CreateRole answers what only GetRole does")
	}
	if doc, _ := url.QueryUnescape(*made.Role.AssumeRolePolicyDocument); doc != ec2Trust {
		t.Errorf("trust policy came back as %s", doc)
	}
	_, err := c.CreateRole(r.ctx(), &iam.CreateRoleInput{RoleName: awssdk.String("WEB-role"), AssumeRolePolicyDocument: awssdk.String(ec2Trust)})
	wantCode(t, err, "EntityAlreadyExists")

	must(c.AttachRolePolicy(r.ctx(), &iam.AttachRolePolicyInput{RoleName: name, PolicyArn: awssdk.String(ssmCore)}))(t)
	must(c.AttachRolePolicy(r.ctx(), &iam.AttachRolePolicyInput{RoleName: name, PolicyArn: awssdk.String(ssmCore)}))(t)
	list := must(c.ListAttachedRolePolicies(r.ctx(), &iam.ListAttachedRolePoliciesInput{RoleName: name}))(t)
	if len(list.AttachedPolicies) != 1 || *list.AttachedPolicies[0].PolicyName != "AmazonSSMManagedInstanceCore" {
		t.Errorf("attached policies: %+v", list.AttachedPolicies)
	}
	got := must(c.GetRole(r.ctx(), &iam.GetRoleInput{RoleName: name}))(t).Role
	if got.MaxSessionDuration == nil || *got.MaxSessionDuration != 3600 || got.RoleLastUsed == nil || len(got.Tags) != 1 || *got.Description != "d" {
		t.Errorf("GetRole: %+v", got)
	}

	profile := awssdk.String("web-profile")
	must(c.CreateInstanceProfile(r.ctx(), &iam.CreateInstanceProfileInput{InstanceProfileName: profile}))(t)
	must(c.AddRoleToInstanceProfile(r.ctx(), &iam.AddRoleToInstanceProfileInput{InstanceProfileName: profile, RoleName: name}))(t)
	_, err = c.AddRoleToInstanceProfile(r.ctx(), &iam.AddRoleToInstanceProfileInput{InstanceProfileName: profile, RoleName: name})
	wantCode(t, err, "LimitExceeded")
	for _, step := range []struct {
		conflict string
		undo     func() error
	}{
		{"must remove roles from instance profile first", func() error {
			_, err := c.RemoveRoleFromInstanceProfile(r.ctx(), &iam.RemoveRoleFromInstanceProfileInput{InstanceProfileName: profile, RoleName: name})
			return err
		}},
		{"must detach all policies first", func() error {
			_, err := c.DetachRolePolicy(r.ctx(), &iam.DetachRolePolicyInput{RoleName: name, PolicyArn: awssdk.String(ssmCore)})
			return err
		}},
	} {
		_, err := c.DeleteRole(r.ctx(), &iam.DeleteRoleInput{RoleName: name})
		wantCode(t, err, "DeleteConflict")
		if !strings.Contains(err.Error(), step.conflict) {
			t.Errorf("conflict %v, want %q", err, step.conflict)
		}
		if err := step.undo(); err != nil {
			t.Fatal(err)
		}
	}
	must(c.DeleteRole(r.ctx(), &iam.DeleteRoleInput{RoleName: name}))(t)
	must(c.DeleteInstanceProfile(r.ctx(), &iam.DeleteInstanceProfileInput{InstanceProfileName: profile}))(t)
	if left := r.w.Objects(sim.ObjectFilter{Service: "iam"}); len(left) != 0 {
		t.Errorf("left over: %+v", left)
	}
}

func TestIAMRefusals(t *testing.T) {
	r := newRig(t, immediate)
	c := iam.NewFromConfig(r.cfg)
	create := func(name, trust string, tags ...types.Tag) error {
		_, err := c.CreateRole(r.ctx(), &iam.CreateRoleInput{RoleName: &name, AssumeRolePolicyDocument: &trust, Tags: tags})
		return err
	}
	tag := func(k, v string) types.Tag { return types.Tag{Key: &k, Value: &v} }
	many := []types.Tag{}
	for i := range 51 {
		many = append(many, tag(fmt.Sprint("k", i), "v"))
	}
	for _, tc := range []struct {
		name, code string
		err        error
	}{
		{"64 characters", "", create(strings.Repeat("a", 64), ec2Trust)},
		{"65 characters", "ValidationError", create(strings.Repeat("a", 65), ec2Trust)},
		{"a space", "ValidationError", create("my role", ec2Trust)},
		{"no JSON", "MalformedPolicyDocument", create("r1", "{")},
		{"no principal", "MalformedPolicyDocument", create("r1", `{"Statement":[{"Effect":"Allow","Action":"sts:AssumeRole"}]}`)},
		{"reserved tag", "InvalidInput", create("r1", ec2Trust, tag("aws:x", "y"))},
		{"tag that only looks reserved", "", create("r2", ec2Trust, tag("aws_team", "y"))},
		{"duplicate tag", "InvalidInput", create("r1", ec2Trust, tag("a", "y"), tag("A", "y"))},
		{"51 tags", "LimitExceeded", create("r1", ec2Trust, many...)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.code == "" {
				if tc.err != nil {
					t.Fatal(tc.err)
				}
				return
			}
			wantCode(t, tc.err, tc.code)
		})
	}
}

func TestRolesPerAccountQuota(t *testing.T) {
	r := newRig(t, immediate)
	c := iam.NewFromConfig(r.cfg)
	r.w.SetQuota("aws", "iam", quotaRoles, "", "", 9) // eight are there from the beginning
	must(c.CreateRole(r.ctx(), &iam.CreateRoleInput{RoleName: awssdk.String("one"), AssumeRolePolicyDocument: awssdk.String(ec2Trust)}))(t)
	_, err := c.CreateRole(r.ctx(), &iam.CreateRoleInput{RoleName: awssdk.String("two"), AssumeRolePolicyDocument: awssdk.String(ec2Trust)})
	wantCode(t, err, "LimitExceeded")
	if !strings.Contains(err.Error(), "Cannot exceed quota for RolesPerAccount: 9") {
		t.Error(err)
	}
}

func TestIAMPages(t *testing.T) {
	opt := immediate
	opt.PageSize = 2
	r := newRig(t, opt)
	c := iam.NewFromConfig(r.cfg)
	for i := range 5 {
		must(c.CreateRole(r.ctx(), &iam.CreateRoleInput{RoleName: awssdk.String(fmt.Sprint("role-", i)), Path: awssdk.String("/team/"), AssumeRolePolicyDocument: awssdk.String(ec2Trust)}))(t)
	}
	var names []string
	p := iam.NewListRolesPaginator(c, &iam.ListRolesInput{PathPrefix: awssdk.String("/team/")})
	pages := 0
	for p.HasMorePages() {
		out := must(p.NextPage(r.ctx()))(t)
		pages++
		for _, role := range out.Roles {
			names = append(names, *role.RoleName)
		}
	}
	if len(names) != 5 || pages != 3 {
		t.Errorf("%d roles on %d pages: %v", len(names), pages, names)
	}
	_, err := c.ListRoles(r.ctx(), &iam.ListRolesInput{Marker: awssdk.String("bogus")})
	wantCode(t, err, "ValidationError")

	if _, err := r.w.AddFault(sim.Fault{Service: "iam", Operation: "ListRoles", Kind: sim.FaultPage, Mode: "empty"}); err != nil {
		t.Fatal(err)
	}
	empty := must(c.ListRoles(r.ctx(), &iam.ListRolesInput{}))(t)
	if len(empty.Roles) != 0 || !empty.IsTruncated || empty.Marker == nil {
		t.Errorf("an empty page with a marker was asked for, got %d roles, truncated %v", len(empty.Roles), empty.IsTruncated)
	}
}

func TestFreshRoleIsNotUsableAtOnce(t *testing.T) {
	r := newRig(t, sim.Options{Seed: 3})
	c, caller := iam.NewFromConfig(r.cfg), sts.NewFromConfig(r.cfg)
	trust := `{"Version":"2012-10-17","Statement":{"Effect":"Allow","Principal":{"AWS":"` + testAccount + `"},"Action":"sts:AssumeRole"}}`
	role := must(c.CreateRole(r.ctx(), &iam.CreateRoleInput{RoleName: awssdk.String("fresh"), AssumeRolePolicyDocument: &trust}))(t).Role
	must(c.CreateInstanceProfile(r.ctx(), &iam.CreateInstanceProfileInput{InstanceProfileName: awssdk.String("fresh")}))(t)
	assume := func() error {
		_, err := caller.AssumeRole(r.ctx(), &sts.AssumeRoleInput{RoleArn: role.Arn, RoleSessionName: awssdk.String("test")})
		return err
	}
	wantCode(t, assume(), "AccessDenied")
	atEC2 := func() bool {
		r.w.Lock()
		defer r.w.Unlock()
		_, ok := r.cloud.hooks.instanceProfile(testAccount, "fresh")
		return ok
	}
	if atEC2() {
		t.Error("EC2 knows a profile at once")
	}
	r.w.Step(15 * time.Second)
	if err := assume(); err != nil {
		t.Error(err)
	}
	if !atEC2() {
		t.Error("EC2 does not know the profile after 15 s")
	}
}

func TestAssumedRoleIsACaller(t *testing.T) {
	r := newRig(t, immediate)
	c, caller := iam.NewFromConfig(r.cfg), sts.NewFromConfig(r.cfg)
	me := must(caller.GetCallerIdentity(r.ctx(), nil))(t)
	if *me.Account != testAccount || !strings.HasPrefix(*me.Arn, "arn:aws:iam::"+testAccount+":user/") || !strings.HasPrefix(*me.UserId, "AIDA") {
		t.Errorf("caller %s %s %s", *me.Account, *me.Arn, *me.UserId)
	}
	role := must(c.CreateRole(r.ctx(), &iam.CreateRoleInput{RoleName: awssdk.String("ops"), Path: awssdk.String("/x/"),
		AssumeRolePolicyDocument: awssdk.String(`{"Statement":[{"Effect":"Allow","Principal":{"AWS":"` + *me.Arn + `"},"Action":"sts:AssumeRole"}]}`)}))(t).Role
	out := must(caller.AssumeRole(r.ctx(), &sts.AssumeRoleInput{RoleArn: role.Arn, RoleSessionName: awssdk.String("s-1"), DurationSeconds: awssdk.Int32(900)}))(t)
	cfg := r.cfg.Copy()
	cfg.Credentials = credentials.NewStaticCredentialsProvider(*out.Credentials.AccessKeyId, *out.Credentials.SecretAccessKey, *out.Credentials.SessionToken)
	as := must(sts.NewFromConfig(cfg).GetCallerIdentity(r.ctx(), nil))(t)
	if want := "arn:aws:sts::" + testAccount + ":assumed-role/ops/s-1"; *as.Arn != want {
		t.Errorf("ARN %s, want %s", *as.Arn, want)
	}
	if want := *role.RoleId + ":s-1"; *as.UserId != want {
		t.Errorf("user ID %s, want %s", *as.UserId, want)
	}
	r.w.Step(901 * time.Second)
	_, err := sts.NewFromConfig(cfg).GetCallerIdentity(r.ctx(), nil)
	wantCode(t, err, "ExpiredToken")
	_, err = caller.AssumeRole(r.ctx(), &sts.AssumeRoleInput{RoleArn: role.Arn, RoleSessionName: awssdk.String("s-1"), DurationSeconds: awssdk.Int32(7200)})
	wantCode(t, err, "ValidationError")
}

func TestSessionTags(t *testing.T) {
	r := newRig(t, immediate)
	c, caller := iam.NewFromConfig(r.cfg), sts.NewFromConfig(r.cfg)
	trust := `{"Statement":[{"Effect":"Allow","Principal":{"AWS":"` + testAccount + `"},"Action":["sts:AssumeRole","sts:TagSession"]}]}`
	plain := strings.Replace(trust, `,"sts:TagSession"`, "", 1)
	var arns []*string
	for name, doc := range map[string]string{"a": trust, "b": plain} {
		arns = append(arns, must(c.CreateRole(r.ctx(), &iam.CreateRoleInput{RoleName: &name, AssumeRolePolicyDocument: &doc}))(t).Role.Arn)
	}
	if strings.HasSuffix(*arns[0], "/b") {
		arns[0], arns[1] = arns[1], arns[0]
	}
	tag := func(k string) ststypes.Tag { return ststypes.Tag{Key: &k, Value: awssdk.String("v")} }
	as := func(client *sts.Client, role *string, transitive []string, tags ...ststypes.Tag) (*sts.AssumeRoleOutput, error) {
		return client.AssumeRole(r.ctx(), &sts.AssumeRoleInput{RoleArn: role, RoleSessionName: awssdk.String("s-1"), Tags: tags, TransitiveTagKeys: transitive})
	}
	_, err := as(caller, arns[0], nil, tag("x"), tag("X"))
	wantCode(t, err, "InvalidParameterValue")
	_, err = as(caller, arns[0], []string{"y"}, tag("x"))
	wantCode(t, err, "InvalidParameterValue")
	_, err = as(caller, arns[1], nil, tag("x"))
	wantCode(t, err, "AccessDenied")
	out := must(as(caller, arns[0], []string{"x"}, tag("x")))(t)
	cfg := r.cfg.Copy()
	cfg.Credentials = credentials.NewStaticCredentialsProvider(*out.Credentials.AccessKeyId, *out.Credentials.SecretAccessKey, *out.Credentials.SessionToken)
	_, err = as(sts.NewFromConfig(cfg), arns[0], nil, tag("X"))
	wantCode(t, err, "InvalidParameterValue")
	if !strings.Contains(err.Error(), "conflicts with a transitive tag key from the calling session") {
		t.Error(err)
	}
	if me := must(c.GetUser(r.ctx(), &iam.GetUserInput{}))(t); *me.User.UserName != "operator" {
		t.Errorf("the calling user is %s", *me.User.UserName)
	}
}
