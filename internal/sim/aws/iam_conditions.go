package aws

import (
	"slices"
	"strings"
)

// holds says whether all conditions of a statement hold for a request's keys, which are in lower case. A key that the
// request does not have makes a condition fail, but for the negated operators and …IfExists ("IAM JSON policy elements:
// Condition operators"). An operator that is not for strings or ARNs never holds here.
func (st policyStatement) holds(keys map[string]string) bool {
	for operator, wants := range st.Condition {
		name, optional := strings.CutSuffix(operator, "IfExists")
		for key, values := range wants {
			got, there := keys[strings.ToLower(key)]
			if !there && optional {
				continue
			}
			if !compares(name, got, there, values) {
				return false
			}
		}
	}
	return true
}

func compares(operator, got string, there bool, values []string) bool {
	any := func(same func(want, got string) bool) bool {
		return slices.ContainsFunc(values, func(v string) bool { return same(v, got) })
	}
	exact := func(want, got string) bool { return want == got }
	switch operator {
	case "StringEquals", "ArnEquals":
		return there && any(exact)
	case "StringEqualsIgnoreCase":
		return there && any(strings.EqualFold)
	case "StringLike", "ArnLike":
		return there && any(wildcard)
	case "StringNotEquals", "ArnNotEquals":
		return !there || !any(exact)
	case "StringNotLike", "ArnNotLike":
		return !there || !any(wildcard)
	case "Null":
		return any(func(want, _ string) bool { return want == "true" }) != there
	}
	return false
}
