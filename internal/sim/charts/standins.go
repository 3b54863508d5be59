package charts

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A standIn says what the real chart of a name looks like, as far as installing
// it is concerned.
type standIn struct {
	name, version, app string
	crds               []crd    // kinds it brings along, in its folder crds
	ownCRDs            []crd    // kinds that are among its templates
	has                []string // parts it has besides a service account, a role, a config map and a service
	daemon             bool     // it runs on every node
	stateful           bool     // it keeps its data in volumes of its own
	kube               string   // Kubernetes versions it takes
	values             string   // top-level values that the real chart has too, as YAML
	schema             string   // and their types, as members of a JSON object
}

// A crd is a kind: its group, plural and kind, and whether it is namespaced.
type crd struct {
	group, plural, kind string
	cluster             bool
}

// The parts a stand-in can have.
const (
	partBalancer   = "load balancer" // its Service is of type LoadBalancer
	partVolume     = "volume"        // a PersistentVolumeClaim
	partBudget     = "budget"        // a PodDisruptionBudget
	partBefore     = "job before"    // a hook that runs before install and upgrade
	partAfter      = "job after"     // a hook that runs after install and upgrade
	partBeforeGone = "job at the end"
)

// table has the charts of the catalogue, and no more than their names, versions
// and shapes.
var table = []standIn{
	{
		name: "gateway-helm", version: "v1.9.1", app: "v1.9.1", has: []string{partBefore},
		crds: []crd{
			{"gateway.networking.k8s.io", "gatewayclasses", "GatewayClass", true}, {"gateway.networking.k8s.io", "gateways", "Gateway", false},
			{"gateway.networking.k8s.io", "httproutes", "HTTPRoute", false}, {"gateway.envoyproxy.io", "envoyproxies", "EnvoyProxy", false},
		},
	},
	{
		name: "traefik", version: "41.3.0", app: "v3.7.11", has: []string{partBalancer},
		crds:   []crd{{"traefik.io", "ingressroutes", "IngressRoute", false}, {"traefik.io", "middlewares", "Middleware", false}},
		values: "deployment: {replicas: 1}\nglobalArguments: [\"--global.checkNewVersion\"]\n",
		schema: `"deployment": {"type": "object", "properties": {"replicas": {"type": "integer", "minimum": 0}}}, "globalArguments": {"type": "array", "items": {"type": "string"}}`,
	},
	{name: "nginx-gateway-fabric", version: "2.6.7", kube: ">= 1.32.0-0", has: []string{partBefore}, crds: []crd{{"gateway.nginx.org", "nginxgateways", "NginxGateway", false}}},
	{
		name: "cert-manager", version: "v1.21.2", app: "v1.21.2", kube: ">= 1.22.0-0",
		ownCRDs: []crd{
			{"cert-manager.io", "certificates", "Certificate", false}, {"cert-manager.io", "issuers", "Issuer", false},
			{"cert-manager.io", "clusterissuers", "ClusterIssuer", true},
		},
	},
	{
		name: "external-dns", version: "1.21.1", app: "0.21.0", crds: []crd{{"externaldns.k8s.io", "dnsendpoints", "DNSEndpoint", false}},
		values: "policy: upsert-only\ntxtOwnerId: \"\"\n",
		schema: `"policy": {"enum": ["create-only", "sync", "upsert-only"]}, "txtOwnerId": {"type": "string"}`,
	},
	{
		name: "external-secrets", version: "2.9.0", app: "v2.9.0",
		crds: []crd{{"external-secrets.io", "externalsecrets", "ExternalSecret", false}, {"external-secrets.io", "secretstores", "SecretStore", false}},
	},
	{name: "metrics-server", version: "3.13.1", app: "0.8.1", has: []string{partBudget}, values: "podDisruptionBudget: {enabled: false}\n"},
	{
		name: "cluster-autoscaler", version: "9.59.0", app: "1.35.0", values: "cloudProvider: aws\nautoDiscovery: {clusterName: \"\"}\nawsRegion: us-east-1\n",
		schema: `"autoDiscovery": {"type": "object", "properties": {"clusterName": {"type": "string"}}}, "awsRegion": {"type": "string"}`,
	},
	{
		name: "karpenter", version: "1.15.2", app: "1.15.2", values: "settings: {clusterName: \"\"}\n",
		crds:   []crd{{"karpenter.sh", "nodepools", "NodePool", true}, {"karpenter.k8s.aws", "ec2nodeclasses", "EC2NodeClass", true}},
		schema: `"settings": {"type": "object", "properties": {"clusterName": {"type": "string"}}}`,
	},
	{
		name: "aws-load-balancer-controller", version: "3.5.0", app: "v3.5.0", values: "clusterName: \"\"\nkeepTLSSecret: true\n",
		crds:   []crd{{"elbv2.k8s.aws", "targetgroupbindings", "TargetGroupBinding", false}},
		schema: `"clusterName": {"type": "string"}, "keepTLSSecret": {"type": "boolean"}`,
	},
	{name: "keda", version: "2.20.2", app: "2.20.2", ownCRDs: []crd{{"keda.sh", "scaledobjects", "ScaledObject", false}, {"keda.sh", "scaledjobs", "ScaledJob", false}}},
	{
		name: "kube-prometheus-stack", version: "88.5.3", app: "v0.93.1", kube: ">= 1.25.0-0", has: []string{partBefore, partAfter}, stateful: true,
		crds: []crd{
			{"monitoring.coreos.com", "prometheuses", "Prometheus", false}, {"monitoring.coreos.com", "servicemonitors", "ServiceMonitor", false},
			{"monitoring.coreos.com", "prometheusrules", "PrometheusRule", false},
		},
		values: "grafana: {enabled: true}\n", schema: `"grafana": {"type": "object", "properties": {"enabled": {"type": "boolean"}}}`,
	},
	{name: "grafana", version: "12.11.1", app: "13.0.0", values: "grafana.ini: {}\n"},
	{name: "loki", version: "18.11.0", stateful: true},
	{name: "tempo", version: "2.2.4", stateful: true},
	{
		name: "opentelemetry-collector", version: "0.170.0", values: "mode: \"\"\n",
		schema: `"mode": {"enum": ["daemonset", "deployment", "statefulset", ""]}`,
	},
	{name: "fluent-bit", version: "0.58.1", app: "5.1.1", daemon: true},
	{name: "argo-cd", version: "10.1.1", app: "v3.4.4", kube: ">= 1.25.0-0", crds: []crd{{"argoproj.io", "applications", "Application", false}, {"argoproj.io", "appprojects", "AppProject", false}}},
	{
		name: "kyverno", version: "3.9.1", has: []string{partAfter, partBeforeGone},
		ownCRDs: []crd{{"kyverno.io", "clusterpolicies", "ClusterPolicy", true}, {"kyverno.io", "policies", "Policy", false}},
	},
	{name: "trivy-operator", version: "0.34.0", app: "0.32.0", crds: []crd{{"aquasecurity.github.io", "vulnerabilityreports", "VulnerabilityReport", false}}},
	{
		name: "velero", version: "12.1.0", app: "1.18.1", values: "backupsEnabled: true\nsnapshotsEnabled: true\n",
		crds:   []crd{{"velero.io", "backups", "Backup", false}, {"velero.io", "restores", "Restore", false}},
		schema: `"backupsEnabled": {"type": "boolean"}, "snapshotsEnabled": {"type": "boolean"}`,
	},
	{name: "reloader", version: "2.2.16", app: "v1.4.21", values: "reloader: {readOnlyRootFileSystem: false}\n"},
	{
		name: "secrets-store-csi-driver", version: "1.6.0", app: "1.6.0", daemon: true,
		crds: []crd{{"secrets-store.csi.x-k8s.io", "secretproviderclasses", "SecretProviderClass", false}},
	},
	{name: "crossplane", version: "2.4.3", app: "2.4.3", crds: []crd{{"apiextensions.crossplane.io", "compositions", "Composition", true}}},
	{name: "cloudnative-pg", version: "0.29.0", app: "1.30.0", crds: []crd{{"postgresql.cnpg.io", "clusters", "Cluster", false}}},
	{name: "valkey", version: "0.11.0", app: "9.1.1", has: []string{partVolume}},
	{name: "redis-operator", version: "0.25.0", app: "0.25.0", crds: []crd{{"redis.redis.opstreelabs.in", "redis", "Redis", false}}},
}

// StandIns are the charts of the catalogue, as stand-ins.
func StandIns() []Chart {
	out := make([]Chart, 0, len(table))
	for _, s := range table {
		out = append(out, s.chart())
	}
	return out
}

func (s standIn) chart() Chart {
	files := map[string]string{
		"values.yaml": commonValues + s.values, "values.schema.json": s.schemaJSON(),
		"templates/NOTES.txt":   "This is a stand-in of " + s.name + " for simulated clusters. It runs no software.\n",
		"templates/common.yaml": templateCommon, "templates/workload.yaml": s.workload(), "templates/service.yaml": s.service(),
	}
	for i, c := range s.crds {
		files[fmt.Sprintf("crds/%d-%s.yaml", i, c.plural)] = c.yaml("")
	}
	for i, c := range s.ownCRDs {
		files[fmt.Sprintf("templates/crd-%d-%s.yaml", i, c.plural)] = c.yaml("    helm.sh/resource-policy: keep\n")
	}
	for _, part := range s.has {
		maps.Copy(files, parts[part])
	}
	return Chart{
		Name: s.name, Version: s.version, AppVersion: s.app, KubeVersion: s.kube, Files: files,
		Description: "A stand-in of the chart " + s.name + " for simulated clusters: its shape, without the software",
	}
}

func (s standIn) workload() string {
	switch {
	case s.daemon:
		return templateDaemonSet
	case s.stateful:
		return templateStatefulSet
	}
	if slices.Contains(s.has, partVolume) {
		mounted := strings.Replace(templateDeployment, "        ports:\n", "        volumeMounts:\n        - {name: data, mountPath: /data}\n        ports:\n", 1)
		return mounted + "      volumes:\n      - {name: data, persistentVolumeClaim: {claimName: {{ .Release.Name }}}}\n"
	}
	return templateDeployment
}

func (s standIn) service() string {
	if slices.Contains(s.has, partBalancer) {
		return strings.ReplaceAll(templateService, "type: ClusterIP", "type: LoadBalancer")
	}
	return templateService
}

// schemaJSON is the schema of the values: those that all stand-ins have, and
// those of its own.
func (s standIn) schemaJSON() string {
	own := s.schema
	if own != "" {
		own = ",\n    " + own
	}
	return strings.ReplaceAll(commonSchema, "OWN", own)
}
