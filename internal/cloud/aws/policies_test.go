package aws

import (
	"flag"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/job"
)

var updatePolicies = flag.Bool("update", false, "write the policies that the lives use")

// A rarity is an action for what none of the lives meets, and what it is for.
type rarity struct {
	action   string
	families []job.ResourceType
	required bool
	what     string
}

var withNetwork = []job.ResourceType{job.VM, job.Network, job.Cluster, job.Datastore, job.Cache}

// rarely are in the policies without being used in a life.
var rarely = []rarity{
	{"ec2:DisassociateRouteTable", withNetwork, true, "a route table that subnets of others hang on, at its removal"},
	{"ec2:ReplaceRouteTableAssociation", withNetwork, true, "a subnet that somebody has given another route table"},
	{"iam:ListInstanceProfilesForRole", withNetwork, false, "a role that cannot be deleted: which instance profiles hold it"},
	{"servicequotas:GetAWSDefaultServiceQuota", withNetwork, false, "a quota that was never changed, where Service Quotas knows the default alone"},
	{"eks:DescribeUpdate", []job.ResourceType{job.Cluster}, false, "an update that is not made: why"},
	{"eks:DeleteFargateProfile", []job.ResourceType{job.Cluster}, true, "Fargate profiles that others have added to a cluster of ours, at its removal"},
	{"kms:EnableKey", []job.ResourceType{job.Cluster}, true, "a key that somebody has disabled"},
	{"kms:UpdateAlias", []job.ResourceType{job.Cluster}, true, "an alias that somebody has pointed at another key"},
	{"rds:DeleteDBInstanceAutomatedBackup", []job.ResourceType{job.Datastore}, true, "automated backups that outlive their instance"},
	{"s3:PutBucketTagging", []job.ResourceType{job.VM}, true, "a bucket for access logs that was made without its tags"},
	{"s3:PutEncryptionConfiguration", []job.ResourceType{job.VM}, true, "a bucket for access logs that somebody has taken its encryption off"},
}

// rare are a family's actions that its lives do not use.
func rare(family job.ResourceType, readOnly, required bool) (out []string) {
	for _, x := range rarely {
		if !readOnly && x.required == required && slices.Contains(x.families, family) {
			out = append(out, x.action)
		}
	}
	return out
}

// elsewhere are actions that the package asks for at endpoints alone that are not
// AWS's own.
var elsewhere = []string{"ssm:GetCommandInvocation"}

// Every operation that the package can send is in a policy.
func TestPoliciesCoverTheSource(t *testing.T) {
	granted := map[string]bool{"sts:GetCallerIdentity": true} // which nobody needs leave for
	for _, p := range Policies() {
		for _, a := range slices.Concat(p.Required, p.Checks) {
			granted[a] = true
		}
	}
	for a := range calls(t) {
		if !granted[a] && !slices.Contains(elsewhere, a) {
			t.Errorf("no policy has %s", a)
		}
	}
}

// recordings are how the lives went with every action granted, each lived once for
// all tests that ask.
var recordings struct {
	sync.Mutex
	endings map[string]ending
}

// recorded are the lives of a family with every action granted.
func recorded(t *testing.T, family job.ResourceType, readOnly bool) map[string]ending {
	t.Helper()
	out := map[string]ending{}
	t.Run("lives", func(t *testing.T) {
		for _, l := range byFamily(family, readOnly) {
			key := string(family) + " " + l.name
			recordings.Lock()
			got, known := recordings.endings[key]
			recordings.Unlock()
			if known {
				out[l.name] = got
				continue
			}
			t.Run(l.name, func(t *testing.T) {
				t.Parallel()
				got := l.run(t, nil)
				if got.err != nil {
					t.Errorf("it ended with %v", got.err)
					return
				}
				for _, s := range slices.Concat(got.said, got.logged) {
					t.Logf("it says: %s", s)
				}
				recordings.Lock()
				defer recordings.Unlock()
				if recordings.endings == nil {
					recordings.endings = map[string]ending{}
				}
				recordings.endings[key], out[l.name] = got, got
			})
		}
	})
	return out
}

// actionsOf is the union of what lives use.
func actionsOf(outcomes map[string]ending) []string {
	return slices.Sorted(maps.Keys(usedBy(outcomes)))
}

// allBut is a list of actions but for one.
func allBut(all []string, one string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(a string) bool { return a == one })
}

// tells reports whether more was not checked than before. Names differ from life to
// life, so lines are counted.
func tells(now, before ending) bool {
	return unread(now.said)+unread(now.logged) > unread(before.said)+unread(before.logged)
}

func unread(said []string) (n int) {
	for _, s := range said {
		if strings.Contains(s, "not checked") || strings.Contains(s, "not authorized") {
			n++
		}
	}
	return n
}

// named reports whether a text has the whole name of an action in it.
func named(text, action string) bool {
	return regexp.MustCompile(`(^|[^A-Za-z:])` + regexp.QuoteMeta(action) + `($|[^A-Za-z])`).MatchString(text)
}

// saidUnchecked reports whether one of the lines says that something was not checked for
// want of an action.
func saidUnchecked(said []string, action string) bool {
	return slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, "not checked") && named(s, action) })
}

// classified splits actions into those without which a life ends badly, and those
// without which something is not checked.
func classified(t *testing.T, family job.ResourceType, readOnly bool, before map[string]ending) (required, checks []string) {
	t.Helper()
	all, by := actionsOf(before), usedBy(before)
	var mu sync.Mutex
	t.Run("without", func(t *testing.T) {
		for _, action := range all {
			t.Run(action, func(t *testing.T) {
				t.Parallel()
				fails, says := false, false
				for _, l := range byFamily(family, readOnly) {
					if fails || !slices.Contains(by[action], l.name) {
						continue
					}
					got := l.run(t, allBut(all, action))
					fails = got.err != nil
					says = says || tells(got, before[l.name])
				}
				mu.Lock()
				defer mu.Unlock()
				if !fails && says {
					checks = append(checks, action)
					return
				}
				if !fails {
					t.Errorf("every life ends well without %s, and nothing is said", action)
				}
				required = append(required, action)
			})
		}
	})
	return required, checks
}

// The policies are what the lives of each family use, neither more nor less, and
// the lives go well with exactly that.
func TestPolicies(t *testing.T) {
	for _, family := range policyFamilies {
		for _, readOnly := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s read-only %v", family, readOnly), func(t *testing.T) {
				before := recorded(t, family, readOnly)
				if *updatePolicies {
					required, checks := classified(t, family, readOnly, before)
					required, checks = append(required, rare(family, readOnly, true)...), append(checks, rare(family, readOnly, false)...)
					text, err := documentOf(slices.Compact(slices.Sorted(slices.Values(required))), checks)
					if err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(policyFile(family, readOnly), text, 0o600); err != nil {
						t.Fatal(err)
					}
					return
				}
				p, ok := PolicyOf(family, readOnly)
				if !ok {
					t.Fatal("there is no policy")
				}
				granted := slices.Sorted(slices.Values(slices.Concat(p.Required, p.Checks)))
				want := slices.Concat(actionsOf(before), rare(family, readOnly, true), rare(family, readOnly, false))
				if d := cmp.Diff(slices.Compact(slices.Sorted(slices.Values(want))), granted); d != "" {
					t.Fatalf("the policy is not what the lives use (-used +granted); go test -run TestPolicies -update writes it:\n%s", d)
				}
				held(t, family, readOnly, granted, before)
				size := 0
				for _, r := range string(p.Document) {
					if !unicode.IsSpace(r) {
						size++
					}
				}
				if t.Logf("%d required, %d checks, %d characters", len(p.Required), len(p.Checks), size); size > maxPolicy {
					t.Errorf("the policy has %d characters, a managed policy %d at most", size, maxPolicy)
				}
			})
		}
	}
}

// held lives the family's lives with exactly what its policy allows.
func held(t *testing.T, family job.ResourceType, readOnly bool, granted []string, before map[string]ending) {
	t.Helper()
	t.Run("enforced", func(t *testing.T) {
		for _, l := range byFamily(family, readOnly) {
			t.Run(l.name, func(t *testing.T) {
				t.Parallel()
				got := l.run(t, granted)
				if got.err != nil || tells(got, before[l.name]) {
					t.Errorf("it ended with %v; it says %q and %q", got.err, got.said, got.logged)
				}
			})
		}
	})
}

// allOfThem has every action tried, and not a sample.
var allOfThem = os.Getenv("E2E_ALL") != ""

// sampled picks a sixth of the actions by a hash, the same ones until its seed
// changes.
func sampled(family job.ResourceType, action string) bool {
	if allOfThem {
		return true
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(policySeed + string(family) + action)) // a hash takes everything
	return h.Sum32()%6 == 0
}

const policySeed = "policies 1"

// Without any one of the required actions a life ends at a refusal that names it;
// without any one of the others the lives end well, and one says what was not
// checked and for want of what.
func TestPoliciesNeedEachAction(t *testing.T) {
	for _, family := range policyFamilies {
		for _, readOnly := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s read-only %v", family, readOnly), func(t *testing.T) {
				p, _ := PolicyOf(family, readOnly)
				all := slices.Concat(p.Required, p.Checks)
				before := recorded(t, family, readOnly)
				tried := 0
				for _, action := range all {
					using := usersOf(family, readOnly, action, before, slices.Contains(p.Required, action))
					if !sampled(family, action) || len(using) == 0 { // what none of the lives meets is in rarely
						continue
					}
					tried++
					t.Run(action, func(t *testing.T) {
						t.Parallel()
						if slices.Contains(p.Required, action) {
							needed(t, using, action, allBut(all, action))
						} else {
							optional(t, using, action, allBut(all, action))
						}
					})
				}
				if tried == 0 {
					t.Error("no action was tried")
				}
			})
		}
	}
}

// usersOf are a family's lives that use an action, those first that are the soonest
// at it, or if it is one to do without, at their end.
func usersOf(family job.ResourceType, readOnly bool, action string, before map[string]ending, required bool) []life {
	using := slices.DeleteFunc(byFamily(family, readOnly), func(l life) bool {
		_, used := before[l.name].at[action]
		return !used
	})
	slices.SortStableFunc(using, func(a, b life) int {
		if required {
			return before[a.name].at[action] - before[b.name].at[action]
		}
		return before[a.name].calls - before[b.name].calls
	})
	return using
}

// needed lives until an action is missed, which has to be named.
func needed(t *testing.T, using []life, action string, granted []string) {
	t.Helper()
	for _, l := range using {
		if err := l.run(t, granted).err; err != nil {
			if !named(err.Error(), action) {
				t.Errorf("without %s %q ends with: %v", action, l.name, err)
			}
			return
		}
	}
	t.Errorf("the lives end well without %s", action)
}

// optional lives without an action that is only there to check something: with
// E2E_ALL every life, otherwise until one has said that it is missing.
func optional(t *testing.T, using []life, action string, granted []string) {
	t.Helper()
	told, logged := false, false
	for _, l := range using {
		got := l.run(t, granted)
		if got.err != nil {
			t.Errorf("without %s %q ends with: %v", action, l.name, got.err)
			return
		}
		told, logged = told || saidUnchecked(got.said, action), logged || saidUnchecked(got.logged, action)
		if told && !allOfThem {
			return
		}
	}
	switch {
	case told:
	case logged:
		t.Logf("what is not checked without %s is in the server's log alone", action)
	default:
		t.Errorf("without %s nothing is said to be not checked", action)
	}
}
