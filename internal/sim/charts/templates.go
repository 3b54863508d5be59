package charts

import (
	"fmt"
	"strings"
)

// What every stand-in has. The image is never pulled: nothing runs on simulated
// nodes.
const commonValues = `replicas: 1
image: {repository: registry.k8s.io/pause, tag: "3.10"}
greeting: hello
`

const commonSchema = `{
  "$schema": "http://json-schema.org/draft-07/schema#",
  "type": "object",
  "properties": {
    "replicas": {"type": "integer", "minimum": 0, "maximum": 100},
    "image": {"type": "object", "properties": {"repository": {"type": "string"}, "tag": {"type": "string"}}},
    "greeting": {"type": "string", "maxLength": 1000}OWN
  }
}
`

const labels = `
    app.kubernetes.io/name: {{ .Chart.Name }}
    app.kubernetes.io/instance: {{ .Release.Name }}`

const templateCommon = `apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .Release.Name }}
  labels:` + labels + `
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}
  labels:` + labels + `
data:
  greeting: {{ .Values.greeting | quote }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ .Release.Namespace }}-{{ .Release.Name }}
  labels:` + labels + `
rules:
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, watch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ .Release.Namespace }}-{{ .Release.Name }}
  labels:` + labels + `
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ .Release.Namespace }}-{{ .Release.Name }}
subjects:
- kind: ServiceAccount
  name: {{ .Release.Name }}
  namespace: {{ .Release.Namespace }}
`

const pod = `
  selector:
    matchLabels:
      app.kubernetes.io/name: {{ .Chart.Name }}
      app.kubernetes.io/instance: {{ .Release.Name }}
  template:
    metadata:
      labels:
        app.kubernetes.io/name: {{ .Chart.Name }}
        app.kubernetes.io/instance: {{ .Release.Name }}
    spec:
      serviceAccountName: {{ .Release.Name }}
      securityContext:
        runAsNonRoot: true
        runAsUser: 65532
        seccompProfile: {type: RuntimeDefault}
      containers:
      - name: main
        image: {{ .Values.image.repository }}:{{ .Values.image.tag }}
        env:
        - {name: GREETING, value: {{ .Values.greeting | quote }}}
        ports:
        - {name: http, containerPort: 8080}
        securityContext:
          allowPrivilegeEscalation: false
          readOnlyRootFilesystem: true
          capabilities: {drop: [ALL]}
        resources:
          requests: {cpu: 10m, memory: 16Mi}
          limits: {memory: 64Mi}
`

const templateDeployment = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .Release.Name }}
  labels:` + labels + `
spec:
  replicas: {{ .Values.replicas }}` + pod

const templateDaemonSet = `apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: {{ .Release.Name }}
  labels:` + labels + `
spec:` + pod

const templateStatefulSet = `apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: {{ .Release.Name }}
  labels:` + labels + `
spec:
  serviceName: {{ .Release.Name }}
  replicas: {{ .Values.replicas }}
  volumeClaimTemplates:
  - metadata:
      name: data
    spec:
      accessModes: [ReadWriteOnce]
      resources: {requests: {storage: 1Gi}}` + pod

const templateService = `apiVersion: v1
kind: Service
metadata:
  name: {{ .Release.Name }}
  labels:` + labels + `
spec:
  type: ClusterIP
  selector:
    app.kubernetes.io/name: {{ .Chart.Name }}
    app.kubernetes.io/instance: {{ .Release.Name }}
  ports:
  - {name: http, port: 80, targetPort: http}
`

// hook is a Job that Helm runs at some points of a release's life.
func hook(suffix, events, more string) string {
	return `apiVersion: batch/v1
kind: Job
metadata:
  name: {{ .Release.Name }}-` + suffix + `
  labels:` + labels + `
  annotations:
    helm.sh/hook: ` + events + `
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
spec:
  backoffLimit: 1` + more + `
  template:
    metadata:
      labels: {app.kubernetes.io/name: {{ .Release.Name }}-` + suffix + `}
    spec:
      restartPolicy: Never
      containers:
      - name: main
        image: {{ .Values.image.repository }}:{{ .Values.image.tag }}
        resources:
          requests: {cpu: 10m, memory: 16Mi}
          limits: {memory: 64Mi}
`
}

// parts are the files of each part.
var parts = map[string]map[string]string{
	partBalancer: {}, // its Service is another one
	partBudget: {"templates/budget.yaml": `apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .Release.Name }}
  labels:` + labels + `
spec:
  minAvailable: 1
  selector:
    matchLabels:
      app.kubernetes.io/instance: {{ .Release.Name }}
`},
	partVolume: {"templates/volume.yaml": `apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: {{ .Release.Name }}
  labels:` + labels + `
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
`},
	partBefore:     {"templates/hook-before.yaml": hook("prepare", "pre-install,pre-upgrade", "")},
	partAfter:      {"templates/hook-after.yaml": hook("settle", "post-install,post-upgrade", "")},
	partBeforeGone: {"templates/hook-end.yaml": hook("clean", "pre-delete", "")},
}

// yaml is the CustomResourceDefinition of a kind, with more annotations.
func (c crd) yaml(annotations string) string {
	scope := "Namespaced"
	if c.cluster {
		scope = "Cluster"
	}
	if annotations == "" {
		annotations = "    {}\n"
	}
	if strings.HasSuffix(c.group, ".k8s.io") {
		// Groups of the Kubernetes project are only taken with a word on who approved them.
		annotations = strings.Replace(annotations, "    {}\n", "", 1) + "    api-approved.kubernetes.io: unapproved, a stand-in for simulated clusters\n"
	}
	return fmt.Sprintf(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: %[1]s.%[2]s
  annotations:
%[5]sspec:
  group: %[2]s
  scope: %[4]s
  names: {plural: %[1]s, singular: %[6]s, kind: %[3]s, listKind: %[3]sList}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        x-kubernetes-preserve-unknown-fields: true
`, c.plural, c.group, c.kind, scope, annotations, strings.ToLower(c.kind))
}
