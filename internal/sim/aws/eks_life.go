package aws

import (
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// How long the parts of a cluster's life take, as a rule.
const (
	networkTime = 60 * time.Second // until the control plane's security group and interfaces are there
	deleteTime  = 4 * time.Minute
	lateLogs    = 20 * time.Second // how late logs of the control plane still arrive
)

// createTime is how long it takes until a cluster is active.
func createTime(w *sim.World, k *EKSCluster) time.Duration {
	return 8*time.Minute + 30*time.Second + time.Duration(w.Fraction("eks create", k.ARN)*float64(time.Minute))
}

// onBehalf makes the context of an operation that a service carries out in an account.
func (c *Cloud) onBehalf(in scope, service, operation string) *reqCtx {
	r := &request{Call: &sim.Call{Cloud: "aws", Service: service, Operation: operation, Account: in.Account, Region: in.Region, Mutating: true}, cloud: c,
		Who: Identity{Account: in.Account}, id: newRequestID()}
	return r.ctx()
}

// serviceRole makes the service-linked role of a service in an account that has none.
func (s *eksService) serviceRole(c *reqCtx, service string) {
	iam := s.cloud.platform.iam
	if iam.state.account(c.account).Roles[strings.ToLower(serviceRoles[service].name)] == nil {
		iam.addServiceRole(c.account, service, "", c.second(), c.uniqueID("AROA"))
	}
}

// grantKey lets the control plane use the key for secrets.
func (s *eksService) grantKey(c *reqCtx, k *EKSCluster) {
	key := s.cloud.platform.kms.lookup(k.scope(), k.KeyARN)
	if key == nil {
		return
	}
	key.Grants = append(key.Grants, &KMSGrant{ID: c.w.Hex("", 64), Grantee: "eks.amazonaws.com", Issuer: k.RoleARN, Name: "eks-" + k.ID, Created: s.cloud.World.Now(),
		Operations: []string{"Encrypt", "Decrypt", "DescribeKey"}})
}

// fail ends the creation of a cluster, which stays in the account until somebody deletes it.
func (k *EKSCluster) fail(code, message string, resources ...string) {
	k.Status = "FAILED"
	k.Issues = append(k.Issues, EKSIssue{Code: code, Message: message, Resources: resources})
}

// clusterNetwork makes the cluster's security group and the interfaces through which the control plane reaches into the VPC.
// They stand in two of its subnets, and in the way of whoever wants to delete those ("View Amazon EKS networking
// requirements for VPC and subnets").
func (s *eksService) clusterNetwork(k *EKSCluster) {
	if k.Status != "CREATING" || k.ClusterGroup != "" {
		return
	}
	ec2 := s.cloud.ec2
	sc := ec2.in(k.scope())
	if sc.Vpcs[k.VpcID] == nil {
		k.fail("VpcNotFound", "The VPC of the cluster does not exist", k.VpcID)
		return
	}
	k.ClusterGroup = s.clusterGroup(sc, k)
	zones := map[string]bool{}
	for _, id := range k.Subnets {
		sub := sc.Subnets[id]
		if sub == nil {
			k.fail("Ec2SubnetNotFound", "We couldn't find one or more subnets of the cluster", id)
			return
		}
		if len(k.Interfaces) >= 2 || zones[sub.Zone] {
			continue
		}
		refs, err := sc.groupRefs(k.VpcID, append([]string{k.ClusterGroup}, k.Groups...))
		if err != nil {
			k.fail("Ec2SecurityGroupNotFound", "We couldn't find one or more security groups of the cluster", k.Groups...)
			return
		}
		n, err := ec2.newInterface(sc, sub, refs, "Amazon EKS "+k.Name, "interface")
		if err != nil {
			k.fail("InsufficientFreeAddresses", "One or more of the subnets associated with your cluster does not have enough available IP addresses for Amazon EKS to perform cluster management operations", id)
			return
		}
		n.Status, n.RequesterManaged, n.RequesterID, n.Holder, n.Default = "in-use", true, "amazon-eks", k.ARN, true
		n.Attachment = &attachment{ID: s.cloud.hex17("eni-attach-"), InstanceOwnerID: "amazon-aws", DeviceIndex: 1, Status: "attached", AttachTime: n.Created}
		zones[sub.Zone] = true
		k.Interfaces = append(k.Interfaces, n.InterfaceID)
	}
}

// clusterGroup makes the security group of the control plane and the managed nodes: everything among its members, and out.
func (s *eksService) clusterGroup(sc *ec2Scope, k *EKSCluster) string {
	ec2 := s.cloud.ec2
	name := "eks-cluster-sg-" + k.Name + "-" + strconv.Itoa(1000000000+int(s.cloud.World.Fraction("eks group", k.ID)*1e9)) // below the 255 characters of a name
	tags := []Tag{{"Name", name}, {"aws:eks:cluster-name", k.Name}, {"kubernetes.io/cluster/" + k.Name, "owned"}}
	g := &SecurityGroup{GroupID: s.cloud.hex17("sg-"), GroupName: name, VpcID: k.VpcID, OwnerID: k.Account, meta: ec2.fresh(tags),
		Description: "EKS created security group applied to ENI that is attached to EKS Control Plane master nodes, as well as any managed workloads."}
	sc.Groups[g.GroupID] = g
	for _, egress := range []bool{false, true} {
		r := &SecurityGroupRule{RuleID: s.cloud.hex17("sgr-"), GroupID: g.GroupID, GroupOwnerID: k.Account, IsEgress: egress, Protocol: "-1", FromPort: -1, ToPort: -1, meta: ec2.fresh(nil)}
		r.Default = true
		if egress {
			r.CidrIpv4 = "0.0.0.0/0"
		} else {
			r.Referenced = &referencedGroup{GroupID: g.GroupID, UserID: k.Account, VpcID: k.VpcID}
		}
		sc.Rules[r.RuleID] = r
	}
	return g.GroupID
}

// clusterReady makes a cluster active, unless something has gone wrong meanwhile.
func (s *eksService) clusterReady(k *EKSCluster) {
	if k.Status != "CREATING" {
		return
	}
	k.Status = "ACTIVE"
	s.kube.kick()
	if s.cloud.opt.Kubernetes == nil {
		s.announce(k, k.ID+".gr7."+k.Region+".eks.amazonaws.com", placeholderCA())
	}
	s.deliverLogs(k)
}

// announce notes where a cluster answers.
func (s *eksService) announce(k *EKSCluster, address string, ca []byte) {
	k.Endpoint, k.CA = "https://"+address, base64.StdEncoding.EncodeToString(ca)
}

// clusterGone ends a cluster's deletion.
func (s *eksService) clusterGone(k *EKSCluster) {
	if k.Status == "DELETING" && s.cloud.World.Now().Sub(k.Deleted) >= deleteTime {
		s.dropCluster(k)
	}
}

// dropCluster takes away what EKS itself made for a cluster. The security group stays if something still uses it, as an
// interface that the CNI plugin left behind does.
func (s *eksService) dropCluster(k *EKSCluster) {
	ec2 := s.cloud.ec2
	sc := ec2.in(k.scope())
	for _, id := range k.Interfaces {
		ec2.dropInterface(sc, id)
	}
	if k.ClusterGroup != "" && !sc.groupInUse(k.ClusterGroup) {
		sc.dropGroup(k.ClusterGroup)
	}
	if key := s.cloud.platform.kms.lookup(k.scope(), k.KeyARN); key != nil {
		key.Grants = slices.DeleteFunc(key.Grants, func(g *KMSGrant) bool { return g.Name == "eks-"+k.ID })
	}
	delete(s.in(k.scope()).Clusters, k.Name)
	s.kube.kick()
}

// healthOf are the issues of a cluster, those included that come and go with what it depends on.
func (s *eksService) healthOf(k *EKSCluster) []EKSIssue {
	out := slices.Clone(k.Issues)
	if k.KeyARN == "" || !k.running() {
		return out
	}
	add := func(code, message string) {
		out = append(out, EKSIssue{Code: code, Message: message, Resources: []string{k.KeyARN}})
	}
	switch key := s.cloud.platform.kms.lookup(k.scope(), k.KeyARN); {
	case key == nil:
		add("KmsKeyNotFound", "The KMS key of the cluster was not found")
	case key.State == keyPendingDeletion:
		add("KmsKeyMarkedForDeletion", "The KMS key of the cluster is marked for deletion")
	case key.State == keyDisabled:
		add("KmsKeyDisabled", "The KMS key of the cluster is disabled")
	}
	return out
}

func (k *EKSCluster) logGroup() string { return "/aws/eks/" + k.Name + "/cluster" }

// deliverLogs makes the log group of a control plane if it is not there: EKS does that whenever it has something to log.
func (s *eksService) deliverLogs(k *EKSCluster) {
	if len(k.Logging) > 0 && k.Status != "CREATING" && k.Status != "FAILED" {
		s.cloud.platform.log.ensure(k.scope(), k.logGroup())
	}
}

// logGroupDeleted: a control plane that is still there, even on its way out, has more to log, and its group is back before
// long (https://github.com/terraform-aws-modules/terraform-aws-eks/issues/2763).
func (s *eksService) logGroupDeleted(in scope, name string) {
	for _, k := range s.in(in).Clusters {
		if k.logGroup() == name {
			s.cloud.after(lateLogs, "eks", "log", k.key())
		}
	}
}
