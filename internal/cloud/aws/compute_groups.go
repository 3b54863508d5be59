package aws

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// The directions of a security group's lines.
const (
	ingress = "ingress"
	egress  = "egress"
)

// A line is one permission of a security group, to or from one peer.
type line struct {
	proto    string // "tcp", "udp", "icmp" or "-1" for everything
	from, to int32
	peer     string // a CIDR, a group's ID or a prefix list's ID
	about    string // its description, which EC2 takes in ASCII only
}

func (l line) String() string {
	ports := fmt.Sprintf("%s %d-%d", l.proto, l.from, l.to)
	switch {
	case l.proto == "-1":
		ports = "all"
	case l.from == l.to:
		ports = fmt.Sprintf("%s %d", l.proto, l.from)
	}
	return ports + " " + l.peer
}

// linesOf takes EC2's nested permissions apart.
func linesOf(perms []ec2types.IpPermission) []line {
	var out []line
	for _, p := range perms {
		l := line{proto: aws.ToString(p.IpProtocol), from: aws.ToInt32(p.FromPort), to: aws.ToInt32(p.ToPort)}
		add := func(peer, about *string) {
			l.peer, l.about = aws.ToString(peer), aws.ToString(about)
			out = append(out, l)
		}
		for _, x := range p.IpRanges {
			add(x.CidrIp, x.Description)
		}
		for _, x := range p.Ipv6Ranges {
			add(x.CidrIpv6, x.Description)
		}
		for _, x := range p.UserIdGroupPairs {
			add(x.GroupId, x.Description)
		}
		for _, x := range p.PrefixListIds {
			add(x.PrefixListId, x.Description)
		}
	}
	return out
}

// permission is a line as EC2 takes it.
func (l line) permission() ec2types.IpPermission {
	p := ec2types.IpPermission{IpProtocol: aws.String(l.proto)}
	if l.proto != "-1" {
		p.FromPort, p.ToPort = aws.Int32(l.from), aws.Int32(l.to)
	}
	var about *string
	if l.about != "" {
		about = aws.String(l.about)
	}
	switch {
	case strings.HasPrefix(l.peer, "sg-"):
		p.UserIdGroupPairs = []ec2types.UserIdGroupPair{{GroupId: aws.String(l.peer), Description: about}}
	case strings.HasPrefix(l.peer, "pl-"):
		p.PrefixListIds = []ec2types.PrefixListId{{PrefixListId: aws.String(l.peer), Description: about}}
	case strings.Contains(l.peer, ":"):
		p.Ipv6Ranges = []ec2types.Ipv6Range{{CidrIpv6: aws.String(l.peer), Description: about}}
	default:
		p.IpRanges = []ec2types.IpRange{{CidrIp: aws.String(l.peer), Description: about}}
	}
	return p
}

func permissions(ls []line) []ec2types.IpPermission {
	var out []ec2types.IpPermission
	for _, l := range ls {
		out = append(out, l.permission())
	}
	return out
}

// linesText is what an aspect compares.
func linesText(ls []line) string {
	if len(ls) == 0 {
		return "none"
	}
	var texts []string
	for _, l := range ls {
		texts = append(texts, l.String())
	}
	slices.Sort(texts)
	return strings.Join(slices.Compact(texts), ", ")
}

// without is a less b.
func without(a, b []line) []line {
	var out []line
	for _, x := range a {
		if !slices.ContainsFunc(b, func(y line) bool { return x.String() == y.String() }) {
			out = append(out, x)
		}
	}
	return out
}

// everything is the line that EC2 gives to a fresh group's egress.
var everything = line{proto: "-1", peer: "0.0.0.0/0"}

// lineAspect compares the lines of a group in one direction. Setting it adds
// what is missing and takes away the egress that every fresh group has. What
// somebody else has added is left in place: only a verify shows it.
func (p *Provider) lineAspect(mode pipeline.Mode, title, group, direction string, want, have []line) pipeline.Aspect {
	missing, surplus := without(want, have), without(have, want)
	open := direction == egress && slices.ContainsFunc(surplus, func(l line) bool { return l.String() == everything.String() })
	shown := have
	if mode == pipeline.Apply {
		shown = without(want, missing)
		if open {
			shown = append(shown, everything)
		}
	}
	return pipeline.Aspect{
		Name: title, Wanted: linesText(want), Seen: linesText(shown), Lane: title,
		Set: func(ctx context.Context) error {
			return pipeline.All(ctx,
				func(ctx context.Context) error { return p.allow(ctx, group, direction, missing) },
				func(ctx context.Context) error {
					if !open {
						return nil
					}
					return p.disallow(ctx, group, egress, []line{everything})
				})
		},
	}
}

// allow adds lines to a group. A line that is there already is no error: an
// earlier try may have added it.
func (p *Provider) allow(ctx context.Context, group, direction string, ls []line) error {
	if len(ls) == 0 {
		return nil
	}
	var err error
	if direction == ingress {
		_, err = p.ec2.AuthorizeSecurityGroupIngress(ctx, &ec2.AuthorizeSecurityGroupIngressInput{GroupId: aws.String(group), IpPermissions: permissions(ls)})
	} else {
		_, err = p.ec2.AuthorizeSecurityGroupEgress(ctx, &ec2.AuthorizeSecurityGroupEgressInput{GroupId: aws.String(group), IpPermissions: permissions(ls)})
	}
	switch {
	case !pipeline.Is(err, pipeline.Exists):
		return err
	case len(ls) == 1:
		return nil
	}
	// One that is there makes EC2 refuse all of them.
	for i := range ls {
		if err := p.allow(ctx, group, direction, ls[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

// disallow takes lines away from a group; one that is not there is no error.
func (p *Provider) disallow(ctx context.Context, group, direction string, ls []line) error {
	if len(ls) == 0 {
		return nil
	}
	var err error
	if direction == ingress {
		_, err = p.ec2.RevokeSecurityGroupIngress(ctx, &ec2.RevokeSecurityGroupIngressInput{GroupId: aws.String(group), IpPermissions: permissions(ls)})
	} else {
		_, err = p.ec2.RevokeSecurityGroupEgress(ctx, &ec2.RevokeSecurityGroupEgressInput{GroupId: aws.String(group), IpPermissions: permissions(ls)})
	}
	if pipeline.Is(err, pipeline.NotFound) {
		return nil
	}
	return err
}

// securityGroup is a group of the job in its network. see adds the aspects.
func (p *Provider) securityGroup(r *pipeline.Run, key, about string, see func(context.Context, ec2types.SecurityGroup) (pipeline.Seen, error)) pipeline.Resource {
	infra := r.Job.Config.InfraConfig
	groupName := name(r, key, 255)
	x := object[ec2types.SecurityGroup]{kind: p.securityGroups(), key: key, name: groupName, see: see}.resource()
	marks := tags(r, key, groupName)
	x.Args = struct {
		Name, VPC, About string
		Tags             map[string]string
	}{groupName, infra.NetworkID, about, marks}
	x.Create = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		out, err := p.ec2.CreateSecurityGroup(ctx, &ec2.CreateSecurityGroupInput{
			GroupName: aws.String(groupName), Description: aws.String(about), VpcId: aws.String(infra.NetworkID),
			TagSpecifications: ec2Specs(marks, ec2types.ResourceTypeSecurityGroup),
		})
		if pipeline.Is(err, pipeline.Exists) {
			return pipeline.Seen{}, p.groupTaken(ctx, r, groupName, infra.NetworkID, err)
		}
		if err != nil {
			return pipeline.Seen{}, err
		}
		return pipeline.Seen{ID: aws.ToString(out.GroupId), Owner: r.Job.ID, Status: pipeline.Pending, Reason: "fresh"}, nil
	}
	x.Delete = func(ctx context.Context, id string) error { return p.deleteGroup(ctx, r, x, id) }
	return tidy(x)
}

// groupTaken says whose the group is that has the wanted name.
func (p *Provider) groupTaken(ctx context.Context, r *pipeline.Run, groupName, vpc string, exists error) error {
	found, err := ec2Page[ec2types.SecurityGroup](p.groupPage).all(ctx, filter("group-name", groupName), filter("vpc-id", vpc))
	if err != nil {
		return exists
	}
	for _, g := range found {
		owner, _ := ec2Mark(g.Tags)
		if err := tagsLate(r, kindSecurityGroup, groupName, owner); err != nil {
			return err
		}
		if owner != r.Job.ID {
			return nameTaken(kindSecurityGroup, groupName, aws.ToString(g.GroupId)).From(exists)
		}
	}
	return exists
}

// tagsLate waits a while before a namesake without a mark is judged, if this
// job may have made it just now: tags can show later than what carries them
// (failure kind F7).
func tagsLate(r *pipeline.Run, kind, name, owner string) error {
	if owner != "" || r.Mode != pipeline.Apply || r.WaitedFor("tags of "+kind+" "+name) > r.Consistency {
		return nil
	}
	return pipeline.Wait(3*time.Second, "the tags of %s %s to become visible", kind, name)
}

// nameTaken is the verdict on a namesake without the job's mark.
func nameTaken(kind, name, id string) *pipeline.FatalError {
	return pipeline.Fatal("name-taken",
		fmt.Sprintf("%s %s exists already as %s and does not carry this job's mark, so it is somebody else's and was not touched", kind, name, id),
		"Rename or remove it, or give the job another name, then retry.")
}

// deleteGroup deletes a group, and finds out what is in the way if it cannot:
// lines of our own groups that name it are revoked, interfaces are waited for,
// and somebody else's group is named and left alone (failure kinds E5, E7).
func (p *Provider) deleteGroup(ctx context.Context, r *pipeline.Run, x pipeline.Resource, id string) error {
	remove := func() error {
		_, err := p.ec2.DeleteSecurityGroup(ctx, &ec2.DeleteSecurityGroupInput{GroupId: aws.String(id)})
		return plain(err)
	}
	err := remove()
	if !pipeline.Is(err, pipeline.Busy) {
		return err
	}
	freed, foreign, serr := p.unlink(ctx, r.Job.ID, id)
	if serr != nil {
		return unlessLacking(serr, err)
	}
	if len(foreign) > 0 {
		return &pipeline.BlockedError{What: x.String() + " (" + id + ")", Err: err,
			By: "rules of " + strings.Join(foreign, ", ") + " refer to it, which this job did not make: remove those rules there"}
	}
	if freed {
		if err = remove(); !pipeline.Is(err, pipeline.Busy) {
			return err
		}
	}
	if p.foreignEndpoint() {
		if lerr := p.removeLeftBehind(ctx, r, r.Job.Config.InfraConfig.NetworkID); lerr != nil {
			return lerr
		}
		if err = remove(); !pipeline.Is(err, pipeline.Busy) {
			return err
		}
	}
	by, berr := p.interfaceBlockers(ctx, r, "it", filter("group-id", id))
	if berr != nil {
		return unlessLacking(berr, err)
	}
	if by != "" {
		return &pipeline.BlockedError{What: x.String() + " (" + id + ")", By: by, Err: err}
	}
	return err
}

// unlessLacking is why a look for what is in the way failed, or the refusal
// itself on a cloud that cannot be asked.
func unlessLacking(err, refusal error) error {
	if lacksCall(plain(err)) {
		return refusal
	}
	return err
}

// unlink revokes the lines by which the owner's own groups refer to one of
// them, and names the groups of others that do.
func (p *Provider) unlink(ctx context.Context, owner, id string) (freed bool, foreign []string, err error) {
	for _, dir := range []struct{ name, filter string }{{ingress, "ip-permission.group-id"}, {egress, "egress.ip-permission.group-id"}} {
		groups, err := ec2Page[ec2types.SecurityGroup](p.groupPage).all(ctx, filter(dir.filter, id))
		if err != nil {
			return freed, nil, err
		}
		for _, g := range groups {
			gid := aws.ToString(g.GroupId)
			if gid == id {
				continue // a group's own lines go with it
			}
			if who, _ := ec2Mark(g.Tags); who != owner {
				foreign = append(foreign, fmt.Sprintf("%s (%s)", gid, aws.ToString(g.GroupName)))
				continue
			}
			perms := g.IpPermissions
			if dir.name == egress {
				perms = g.IpPermissionsEgress
			}
			if err := p.disallow(ctx, gid, dir.name, linesTo(linesOf(perms), id)); err != nil {
				return freed, nil, err
			}
			freed = true
		}
	}
	slices.Sort(foreign)
	return freed, slices.Compact(foreign), nil
}

// linesTo are the lines that name a peer.
func linesTo(ls []line, peer string) []line {
	return slices.DeleteFunc(slices.Clone(ls), func(l line) bool { return l.peer != peer })
}

// vmGroup is the VMs' security group: no ingress at all, least of all 22, until
// a load balancer is put in front of them.
func (p *Provider) vmGroup(r *pipeline.Run) pipeline.Resource {
	return p.securityGroup(r, "vm", "VMs of "+r.Job.Name+": no ingress but from their load balancer",
		func(_ context.Context, g ec2types.SecurityGroup) (pipeline.Seen, error) {
			if r.Down {
				return pipeline.Seen{Status: pipeline.Ready}, nil
			}
			var want []line
			if lb, err := r.Job.LoadBalancer(); err == nil && lb != nil {
				want = vmIngress(*lb, r.Job.Config.InfraConfig.LoadBalancerSecurityGroupID)
			}
			a := p.lineAspect(r.Mode, ingress, aws.ToString(g.GroupId), ingress, want, linesOf(g.IpPermissions))
			return pipeline.Seen{Status: pipeline.Ready, Aspects: []pipeline.Aspect{a}}, nil
		})
}

// vmIngress is what the VMs' group lets in: traffic and health checks of the
// load balancer, where there is one.
func vmIngress(lb job.LoadBalancer, from string) []line {
	if from == "" {
		return nil
	}
	out := []line{{proto: "tcp", from: int32(lb.Port), to: int32(lb.Port), peer: from, about: "traffic from the load balancer"}}
	if lb.HealthCheck.Port != lb.Port {
		out = append(out, line{proto: "tcp", from: int32(lb.HealthCheck.Port), to: int32(lb.HealthCheck.Port), peer: from, about: "health checks of the load balancer"})
	}
	return out
}
