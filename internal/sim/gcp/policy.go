package gcp

import (
	"encoding/base64"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// A policy is an IAM allow policy.
type policy struct {
	Doc Doc // bindings, auditConfigs, version
	Seq int // number of changes
	Tag string
}

// emptyTag is the etag of a policy that was never set.
const emptyTag = "ACAB"

func (p *policy) etag() string {
	if p == nil || p.Tag == "" {
		return emptyTag
	}
	return p.Tag
}

func (p *policy) shown() Doc {
	out := Doc{"etag": p.etag()}
	if p != nil {
		maps.Copy(out, clone(p.Doc))
	}
	return out
}

// accountGone renames a deleted service account.
func (p *policy) accountGone(a ServiceAccount) {
	if p == nil {
		return
	}
	for _, b := range docs(p.Doc, "bindings") {
		members := list(b, "members")
		for i, member := range members {
			if member == "serviceAccount:"+a.Email {
				members[i] = "deleted:serviceAccount:" + a.Email + "?uid=" + a.UniqueID
			}
		}
	}
}

// changePolicy is what setIamPolicy makes of a policy. The etag has to be that of the policy now, if one is given ("Policy",
// IAM: etag); every role and every service account has to exist.
func (c *Cloud) changePolicy(r *request, now *policy) (*policy, error) {
	in := sub(r.Body, "policy")
	if in == nil {
		return nil, badArgument("Policy must be set.")
	}
	if tag := str(in, "etag"); tag != "" && tag != now.etag() {
		return nil, &Error{HTTP: 409, Reason: "aborted", Status: "ABORTED", Message: fmt.Sprintf("There were concurrent policy changes. Please retry the whole read-modify-write with "+
			"exponential backoff. The request's ETag '%s' did not match the current policy's ETag '%s'.", tag, now.etag())}
	}
	bindings, conditional, err := c.readBindings(in)
	if err != nil {
		return nil, err
	}
	if conditional && num(in, "version") < 3 {
		return nil, badArgument("Policies with conditional role bindings must have the version 3.")
	}
	next := &policy{Doc: Doc{"version": float64(1)}}
	if conditional {
		next.Doc["version"] = float64(3)
	}
	if len(bindings) > 0 {
		next.Doc["bindings"] = bindings
	}
	mask := str(r.Body, "updateMask")
	switch {
	case mask == "" || strings.Contains(mask, "auditConfigs"):
		if audit := list(in, "auditConfigs"); len(audit) > 0 {
			next.Doc["auditConfigs"] = audit
		}
	case now != nil && now.Doc["auditConfigs"] != nil:
		next.Doc["auditConfigs"] = now.Doc["auditConfigs"]
	}
	if now != nil {
		next.Seq = now.Seq + 1
	}
	next.Tag = base64.StdEncoding.EncodeToString([]byte("\x07" + fingerprint([]any{next.Doc, strconv.Itoa(next.Seq)}))[:7])
	return next, nil
}

// readBindings checks the bindings and joins those of the same role and condition.
func (c *Cloud) readBindings(in Doc) (out []any, conditional bool, err error) {
	joined := map[string]Doc{}
	for _, b := range docs(in, "bindings") {
		name := str(b, "role")
		if err := c.checkRole(name); err != nil {
			return nil, false, err
		}
		members := texts(b, "members")
		if len(members) == 0 {
			continue
		}
		for _, m := range members {
			if c.policyMember != nil {
				if e := c.policyMember(m); e != nil {
					return nil, false, e
				}
			}
		}
		conditional = conditional || b["condition"] != nil
		key := name + fingerprint(b["condition"])
		if have := joined[key]; have != nil {
			members = append(texts(have, "members"), members...)
		}
		sort.Strings(members)
		doc := Doc{"role": name, "members": anys(slices.Compact(members))}
		if b["condition"] != nil {
			doc["condition"] = b["condition"]
		}
		joined[key] = doc
	}
	for _, key := range keysOf(joined) {
		out = append(out, joined[key])
	}
	return out, conditional, nil
}

var customRole = regexp.MustCompile(`^(projects|organizations)/[^/]+/roles/[a-zA-Z0-9_.]{3,64}$`)

// checkRole refuses roles that do not exist. Of the predefined ones only the service is looked at.
func (c *Cloud) checkRole(name string) error {
	if customRole.MatchString(name) {
		if c.iam.st.Roles[name] == nil || truth(c.iam.st.Roles[name].Doc, "deleted") {
			return badArgument("Role (%s) does not exist in the resource's hierarchy.", name)
		}
		return nil
	}
	if predefinedExists(name) {
		return nil
	}
	return badArgument("Role %s is not supported for this resource.", name)
}

// testPermissions answers those of the permissions asked for that the caller has: whoever may use a project may do everything in
// it, but for what the caller's grants leave out.
func testPermissions(r *request) (any, error) {
	var have []any
	for _, p := range texts(r.Body, "permissions") {
		if r.cloud.World.Granted(cloudName, r.Caller, p) {
			have = append(have, p)
		}
	}
	if len(have) == 0 {
		return Doc{}, nil
	}
	return Doc{"permissions": have}, nil
}
