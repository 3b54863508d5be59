package gcp

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/api/sqladmin/v1"

	"github.com/zopday/provisioner/internal/job"
)

// sqlSupport is until when major versions are in standard support, as their makers
// and Cloud SQL's "Extended support" say; after it every vCPU is billed extra. No
// API tells it.
var sqlSupport = map[string]string{
	"POSTGRES_14": "2026-11-12", "POSTGRES_15": "2027-11-11", "POSTGRES_16": "2028-11-09", "POSTGRES_17": "2029-11-08", "POSTGRES_18": "2030-11-14",
	"MYSQL_8_0": "2026-04-30", "MYSQL_8_4": "2032-04-30",
}

// version resolves the engine's version by what Cloud SQL offers now: those that
// its flags apply to. It has no other list of them.
func (k *datastoreChecker) version(ctx context.Context) error {
	const check, field = "engine version", "config.spec.version"
	if k.settled() && k.info.Version != "" {
		k.ok(check, "%s %s", k.info.Engine.Title(), k.info.Version)
		return nil
	}
	out, err := send(ctx, k.p.data.sql.Flags.List())
	if err != nil {
		k.info.Version = or(k.spec.Version, newestSupported(knownVersions(k.info.Engine), k.info.Engine, k.r.Now()))
		return k.unchecked(ctx, check, field, err)
	}
	offered := offeredVersions(out.Items, k.info.Engine)
	want := k.spec.Version
	if want == "" {
		want = newestSupported(offered, k.info.Engine, k.r.Now())
	}
	want = pickVersion(offered, want)
	if !slices.Contains(offered, want) {
		k.fails(check, field, fmt.Sprintf("Cloud SQL does not offer %s %s; it has %s", k.info.Engine.Title(), or(want, "in standard support"), nearest(offered, want)), "Use one of these, or leave it out.")
		return nil
	}
	k.info.Version = want
	if until := supportedUntil(k.info.Engine, want); until != "" && until < k.r.Now().UTC().Format(time.DateOnly) {
		k.warn(check, field, fmt.Sprintf("the standard support of %s %s ended on %s: Cloud SQL bills extra for it", k.info.Engine.Title(), want, until), "Use a newer one.")
		return nil
	}
	k.ok(check, "%s %s", k.info.Engine.Title(), want)
	return nil
}

// offeredVersions are the versions of an engine that flags apply to, the oldest first.
func offeredVersions(flags []*sqladmin.Flag, e job.Engine) []string {
	var out []string
	for _, f := range flags {
		for _, v := range f.AppliesTo {
			if of, version := engineOf(v); of == e {
				out = append(out, version)
			}
		}
	}
	slices.SortFunc(out, compareVersions)
	return slices.Compact(out)
}

// knownVersions are the versions of an engine whose support is known, the oldest
// first: what is gone by where the cloud cannot be asked.
func knownVersions(e job.Engine) []string {
	var out []string
	for v := range sqlSupport {
		if of, version := engineOf(v); of == e {
			out = append(out, version)
		}
	}
	slices.SortFunc(out, compareVersions)
	return out
}

func supportedUntil(e job.Engine, version string) string {
	known := ""
	for v, until := range sqlSupport {
		if full := databaseVersion(e, version); full == v || strings.HasPrefix(full, v+"_") {
			known = until
		}
	}
	return known
}

// newestSupported is the newest version of which is known that its support goes on;
// where none is known, the newest of all.
func newestSupported(offered []string, e job.Engine, now time.Time) string {
	best := ""
	for _, v := range offered {
		if until := supportedUntil(e, v); until >= now.UTC().Format(time.DateOnly) && strings.Count(v, ".") <= 1 {
			best = v
		}
	}
	if best == "" && len(offered) > 0 {
		best = offered[len(offered)-1]
	}
	return best
}

// class resolves the size into a class, or proves the one that is named. Custom
// machines come in any size within Cloud SQL's rules, so the smallest that has what
// is asked for is computed, not looked up ("Instance settings: machine type").
func (k *datastoreChecker) class(ctx context.Context) error {
	const check = "class"
	field := "config.spec.size"
	if k.spec.InstanceType != "" {
		field = "config.spec.instanceType"
	}
	if k.settled() && k.info.Class != "" {
		k.ok(check, "%s", k.info.Class)
		return nil
	}
	k.info.StorageGiB = k.spec.StorageGiB
	want := k.spec.InstanceType
	if want == "" {
		want = customTier(k.spec.Size.VCPUs, k.spec.Size.MemoryGiB)
	}
	if why := tierFault(want); why != "" {
		k.fails(check, field, fmt.Sprintf("%s is no class of the Enterprise edition: %s", want, why), "Use one such as db-custom-2-8192 (vCPUs, MiB), db-g1-small or db-f1-micro.")
		return nil
	}
	out, err := send(ctx, k.p.data.sql.Tiers.List(k.p.project))
	if err != nil {
		k.info.Class = want
		k.info.VCPUs, k.info.MemoryGiB = tierSize(want, nil)
		return k.unchecked(ctx, check, field, err)
	}
	if !offersTier(out.Items, want, k.p.region) {
		k.fails(check, field, fmt.Sprintf("%s does not offer %s now", k.p.region, want), "Use one of "+strings.Join(tiersIn(out.Items, k.p.region), ", ")+", or another region.")
		return nil
	}
	k.info.Class = want
	k.info.VCPUs, k.info.MemoryGiB = tierSize(want, out.Items)
	k.ok(check, "%s, %g GiB of memory, %d GiB of disk", want, k.info.MemoryGiB, k.info.StorageGiB)
	return nil
}

// customTier is the smallest custom machine with so many vCPUs and GiB: one vCPU or
// an even number, 0.9 to 6.5 GiB each, 3.75 GiB at least, in steps of 256 MiB.
func customTier(vcpus, memoryGiB int) string {
	cpus, mib := max(vcpus, 1), max(memoryGiB*1024, 3840)
	for ; ; cpus++ {
		if cpus > 1 && cpus%2 == 1 || mib*10 > cpus*65*1024 {
			continue
		}
		least := (cpus*9*1024/10 + 255) / 256 * 256
		return fmt.Sprintf("db-custom-%d-%d", cpus, max(mib, least))
	}
}

// customSize reads db-custom-C-M; false for other classes.
func customSize(tier string) (cpus, mib int, ok bool) {
	rest, found := strings.CutPrefix(tier, "db-custom-")
	c, m, two := strings.Cut(rest, "-")
	cpus, err := strconv.Atoi(c)
	mib, bad := strconv.Atoi(m)
	return cpus, mib, found && two && err == nil && bad == nil
}

// tierFault says what is wrong with a class for the Enterprise edition; "" if
// nothing is.
func tierFault(tier string) string {
	cpus, mib, custom := customSize(tier)
	switch {
	case strings.HasPrefix(tier, "db-custom-") && !strings.HasPrefix(tier, "db-custom-N4-") && !custom:
		return "a custom machine is written db-custom-vCPUs-MiB"
	case !custom && (strings.HasPrefix(tier, "db-custom-") || strings.HasPrefix(tier, "db-n1-") || tier == "db-f1-micro" || tier == "db-g1-small"):
		return ""
	case !custom:
		return "it belongs to another edition, or to none"
	case cpus < 1 || cpus > 96 || cpus > 1 && cpus%2 == 1:
		return "vCPUs are 1, or an even number up to 96"
	case mib%256 != 0 || mib < 3840:
		return "memory is a multiple of 256 MiB, and 3840 MiB at least"
	case mib*10 < cpus*9*1024 || mib*10 > cpus*65*1024:
		return "each vCPU takes 0.9 to 6.5 GiB"
	}
	return ""
}

// offersTier reports whether a region has a class. Custom machines are not listed:
// they are wherever Cloud SQL is.
func offersTier(tiers []*sqladmin.Tier, want, region string) bool {
	_, _, custom := customSize(want)
	return slices.ContainsFunc(tiers, func(t *sqladmin.Tier) bool {
		return (t.Tier == want || custom) && slices.Contains(t.Region, region)
	})
}

// tiersIn are the classes of the Enterprise edition that a region has.
func tiersIn(tiers []*sqladmin.Tier, region string) []string {
	var out []string
	for _, t := range tiers {
		if slices.Contains(t.Region, region) && tierFault(t.Tier) == "" {
			out = append(out, t.Tier)
		}
	}
	return out
}

// tierSize is how many vCPUs and GiB a class has, as far as that is known.
func tierSize(tier string, tiers []*sqladmin.Tier) (vcpus int, memoryGiB float64) {
	if cpus, mib, ok := customSize(tier); ok {
		return cpus, float64(mib) / 1024
	}
	vcpus = 1
	if i := strings.LastIndexByte(tier, '-'); i >= 0 {
		if n, err := strconv.Atoi(tier[i+1:]); err == nil {
			vcpus = n
		}
	}
	for _, t := range tiers {
		if t.Tier == tier {
			return vcpus, float64(t.RAM) / (1 << 30)
		}
	}
	switch tier {
	case "db-f1-micro":
		return 1, 0.6
	case "db-g1-small":
		return 1, 1.7
	}
	return 0, 0
}
