package aws

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// redacted is the text of a request without the values of its secret parameters.
func (a *api) redacted(r *http.Request, form url.Values, body []byte) string {
	if len(a.secrets) == 0 {
		return paramText(r, form, body)
	}
	clean := maps.Clone(form)
	for k := range clean {
		for part := range strings.SplitSeq(k, ".") {
			if slices.Contains(a.secrets, part) {
				clean[k] = []string{blanked}
			}
		}
	}
	if strings.HasPrefix(r.Header.Get("Content-Type"), "application/x-amz-json") {
		body = a.redactedJSON(body)
	}
	return paramText(r, clean, body)
}

// blanked stands for a secret.
const blanked = "****"

func (a *api) redactedJSON(body []byte) []byte {
	var doc map[string]any
	if json.Unmarshal(body, &doc) != nil {
		return nil // what cannot be read cannot be cleaned
	}
	for _, name := range a.secrets {
		if _, ok := doc[name]; ok {
			doc[name] = blanked
		}
	}
	clean, err := json.Marshal(doc)
	if err != nil {
		return nil
	}
	return clean
}
