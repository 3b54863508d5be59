package components

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestMasked shows nothing of a Secret, also where a chart puts there what no
// Secret can hold.
func TestMasked(t *testing.T) {
	secret := func(data any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"kind": "Secret", "stringData": data}}
	}
	old := secret(map[string]any{"word": "hush", "map": map[string]any{"a": "hush"}, "list": []any{"hush"}})
	now := secret(map[string]any{"word": "hush", "map": map[string]any{"a": "hush!"}, "list": []any{"hush"}})
	for _, now := range []*unstructured.Unstructured{now, secret("hush"), nil} {
		a, b := masked(old, now)
		if text := fmt.Sprint(a, b); strings.Contains(text, "hush") || now != nil && b == nil {
			t.Errorf("shown: %s", text)
		}
	}
	a, _ := masked(old, now)
	if got := fmt.Sprint(a.Object["stringData"]); got != "map[list:hidden map:hidden, as it was word:hidden]" {
		t.Errorf("shown: %s", got)
	}
}
