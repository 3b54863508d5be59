package components

import (
	"fmt"
	"strings"

	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// parseManifest reads the objects of a rendered manifest, in its order. Those
// that have no namespace get the release's; whether their kind takes one is only
// known to the cluster.
func parseManifest(manifest, namespace string) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	docs := releaseutil.SplitManifests(manifest)
	for i := range len(docs) {
		doc := docs[fmt.Sprintf("manifest-%d", i)]
		var fields map[string]any
		if err := yaml.Unmarshal([]byte(doc), &fields); err != nil {
			return nil, fmt.Errorf("document %d: %w", i+1, err)
		}
		if len(fields) == 0 {
			continue // a document of comments
		}
		o := &unstructured.Unstructured{Object: fields}
		if o.IsList() {
			list, err := o.ToList()
			if err != nil {
				return nil, fmt.Errorf("document %d: %w", i+1, err)
			}
			for j := range list.Items {
				out = append(out, &list.Items[j])
			}
			continue
		}
		out = append(out, o)
	}
	for _, o := range out {
		if o.GetKind() == "" || o.GetAPIVersion() == "" {
			return nil, fmt.Errorf("an object without kind or apiVersion")
		}
		if o.GetName() == "" && o.GetGenerateName() == "" {
			return nil, fmt.Errorf("a %s without a name", o.GetKind())
		}
		if o.GetNamespace() == "" {
			o.SetNamespace(namespace)
		}
	}
	return out, nil
}

func isCRD(o *unstructured.Unstructured) bool {
	return o.GetKind() == "CustomResourceDefinition" && o.GroupVersionKind().Group == "apiextensions.k8s.io"
}

// name is an object as a person is told of it.
func name(o *unstructured.Unstructured) string {
	return strings.TrimSuffix(fmt.Sprintf("%s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName()), "/")
}

func nested(o map[string]any, path ...string) (string, bool, error) {
	return unstructured.NestedString(o, path...)
}

func nestedSlice(o map[string]any, path ...string) ([]any, bool, error) {
	return unstructured.NestedSlice(o, path...)
}
