package aws

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/eks/types"
)

// addonKind is an add-on that EKS offers.
type addonKind struct {
	kind, namespace string
	deployment      bool     // it needs a node to be healthy; the others run on every node there is
	accounts        []string // service accounts that may be given a role
	action          string   // what its role must allow at least
	needsRole       bool     // without it the software does not start
	policy          string   // the managed policy that is recommended for it
	schema          []string // the top-level properties of its configuration
	// versions are those for each minor version of Kubernetes, by how much the newest one's last number differs.
	major string
	build int
}

// addonKinds are the add-ons of AWS, by name ("AWS add-ons", Amazon EKS user guide).
var addonKinds = map[string]addonKind{
	"vpc-cni": {kind: "networking", namespace: "kube-system", accounts: []string{"aws-node"}, action: "ec2:AssignPrivateIpAddresses", policy: "AmazonEKS_CNI_Policy",
		schema: []string{"affinity", "enableNetworkPolicy", "eniConfig", "env", "extraVolumeMounts", "extraVolumes", "init", "livenessProbe", "livenessProbeTimeoutSeconds", "nodeAgent",
			"nodeSelector", "podAnnotations", "podLabels", "readinessProbe", "readinessProbeTimeoutSeconds", "resources", "tolerations", "updateStrategy", "configMap"}, major: "v1.21", build: 4},
	"coredns": {kind: "networking", namespace: "kube-system", deployment: true,
		schema: []string{"affinity", "autoScaling", "computeType", "corefile", "nodeSelector", "podAnnotations", "podDisruptionBudget", "podLabels", "replicaCount", "resources", "tolerations",
			"topologySpreadConstraints"}, major: "v1.13", build: 3},
	"kube-proxy": {kind: "networking", namespace: "kube-system",
		schema: []string{"affinity", "ipvs", "mode", "nodeSelector", "podAnnotations", "podLabels", "resources", "tolerations"}, major: "", build: 2},
	"aws-ebs-csi-driver": {kind: "storage", namespace: "kube-system", deployment: true, accounts: []string{"ebs-csi-controller-sa"}, action: "ec2:CreateVolume", needsRole: true,
		policy: "service-role/AmazonEBSCSIDriverPolicyV2", schema: []string{"additionalDaemonSets", "awsAccessSecret", "a1CompatibilityDaemonSet", "controller", "debugLogs", "defaultStorageClass",
			"fips", "helmTester", "image", "imagePullSecrets", "legacyXFS", "node", "nodeComponentOnly", "proxy", "sidecars", "storageClasses", "volumeSnapshotClasses"}, major: "v1.56", build: 1},
	"aws-efs-csi-driver": {kind: "storage", namespace: "kube-system", deployment: true, accounts: []string{"efs-csi-controller-sa", "efs-csi-node-sa"}, action: "elasticfilesystem:DescribeFileSystems",
		policy: "service-role/AmazonEFSCSIDriverPolicy", schema: []string{"controller", "node", "sidecars"}, major: "v2.3", build: 1},
	"eks-pod-identity-agent": {kind: "security", namespace: "kube-system",
		schema: []string{"affinity", "agent", "daemonsets", "env", "init", "nodeSelector", "podAnnotations", "podLabels", "priorityClassName", "resources", "tolerations", "updateStrategy"}, major: "v1.3", build: 10},
	"metrics-server": {kind: "observability", namespace: "kube-system", deployment: true,
		schema: []string{"addonResizer", "affinity", "args", "nodeSelector", "podAnnotations", "podDisruptionBudget", "podLabels", "replicas", "resources", "tolerations", "topologySpreadConstraints"},
		major:  "v0.8", build: 1},
	"snapshot-controller": {kind: "storage", namespace: "kube-system", deployment: true,
		schema: []string{"affinity", "controller", "nodeSelector", "replicaCount", "resources", "tolerations"}, major: "v8.4", build: 0},
	"amazon-cloudwatch-observability": {kind: "observability", namespace: "amazon-cloudwatch", deployment: true, accounts: []string{"cloudwatch-agent"}, action: "cloudwatch:PutMetricData",
		policy: "CloudWatchAgentServerPolicy", schema: []string{"agent", "containerLogs", "manager", "tolerations"}, major: "v4.10", build: 3},
}

// properties are the top-level properties of an add-on's configuration schema.
func (a addonKind) properties() map[string]any {
	out := map[string]any{}
	for _, name := range a.schema {
		out[name] = map[string]any{}
	}
	return out
}

// versions lists the versions of an add-on for a version of Kubernetes, newest first. kube-proxy's follow Kubernetes itself.
func (a addonKind) versions(v eksVersion) []string {
	var out []string
	for back := range 3 {
		if a.major == "" {
			out = append(out, fmt.Sprintf("v%s-eksbuild.%d", v.Patch, a.build+3-back))
			continue
		}
		out = append(out, fmt.Sprintf("%s.%d-eksbuild.%d", a.major, a.build, 3-back))
	}
	return out
}

// version resolves the version of an add-on for a cluster: by default the one before the newest, as EKS chooses it.
func (a addonKind) version(k *EKSCluster, version string) (string, error) {
	v, _ := findVersion(k.Version)
	all := a.versions(v)
	switch {
	case version == "":
		return all[1], nil
	case !slices.Contains(all, version):
		return "", invalidParameter(k.Name, "Addon version specified is not supported")
	}
	return version, nil
}

func (s *eksService) describeAddonVersions(c *reqCtx, in *eks.DescribeAddonVersionsInput) (*eks.DescribeAddonVersionsOutput, error) {
	only := deref(in.AddonName)
	if _, ok := addonKinds[only]; only != "" && !ok {
		return nil, noResource("", "Addon %s does not exist", only)
	}
	if v := deref(in.KubernetesVersion); v != "" {
		if _, err := s.creatable("", v); err != nil {
			return nil, invalidParameter("", "The Kubernetes version %s is not supported", v)
		}
	}
	all := []types.AddonInfo{}
	for _, name := range sortedKeys(addonKinds) {
		a := addonKinds[name]
		if only != "" && name != only || len(in.Types) > 0 && !slices.Contains(in.Types, a.kind) || len(in.Owners) > 0 && !slices.Contains(in.Owners, "aws") ||
			len(in.Publishers) > 0 && !slices.Contains(in.Publishers, "eks") {
			continue
		}
		all = append(all, types.AddonInfo{AddonName: new(name), Type: new(a.kind), Owner: new("aws"), Publisher: new("eks"), DefaultNamespace: new(a.namespace),
			AddonVersions: s.addonVersions(a, deref(in.KubernetesVersion))})
	}
	page, next, err := eksPage(c, all, in.NextToken, in.MaxResults)
	return &eks.DescribeAddonVersionsOutput{Addons: page, NextToken: next}, err
}

// addonVersions lists the versions of an add-on with the clusters that each is for.
func (s *eksService) addonVersions(a addonKind, kubernetes string) []types.AddonVersionInfo {
	var order []string
	fits := map[string][]types.Compatibility{}
	for _, v := range slices.Backward(eksVersions) {
		if v.status(s.cloud.World.Now()) == "UNSUPPORTED" || s.cloud.World.Now().Before(v.Released) || kubernetes != "" && v.Version != kubernetes {
			continue
		}
		for n, version := range a.versions(v) {
			if fits[version] == nil {
				order = append(order, version)
			}
			fits[version] = append(fits[version], types.Compatibility{ClusterVersion: new(v.Version), PlatformVersions: []string{"*"}, DefaultVersion: n == 1})
		}
	}
	out := []types.AddonVersionInfo{}
	for _, version := range order {
		out = append(out, types.AddonVersionInfo{AddonVersion: new(version), Architecture: []string{"amd64", "arm64"}, ComputeTypes: []string{"ec2", "auto", "hybrid"},
			Compatibilities: fits[version], RequiresIamPermissions: a.action != ""})
	}
	return out
}

func (s *eksService) describeAddonConfiguration(_ *reqCtx, in *eks.DescribeAddonConfigurationInput) (*eks.DescribeAddonConfigurationOutput, error) {
	a, ok := addonKinds[deref(in.AddonName)]
	if !ok {
		return nil, noResource("", "Addon %s does not exist", deref(in.AddonName))
	}
	known := slices.ContainsFunc(eksVersions, func(v eksVersion) bool { return slices.Contains(a.versions(v), deref(in.AddonVersion)) })
	if !known {
		return nil, invalidParameter("", "Addon version specified is not supported")
	}
	schema, err := json.Marshal(map[string]any{"$schema": "http://json-schema.org/draft-06/schema#", "additionalProperties": false, "type": "object", "properties": a.properties()})
	if err != nil {
		return nil, err
	}
	out := &eks.DescribeAddonConfigurationOutput{AddonName: in.AddonName, AddonVersion: in.AddonVersion, ConfigurationSchema: new(string(schema))}
	for _, account := range a.accounts {
		out.PodIdentityConfiguration = append(out.PodIdentityConfiguration, types.AddonPodIdentityConfiguration{ServiceAccount: new(account),
			RecommendedManagedPolicies: []string{"arn:aws:iam::aws:policy/" + strings.TrimPrefix(a.policy, "/")}})
	}
	return out, nil
}
