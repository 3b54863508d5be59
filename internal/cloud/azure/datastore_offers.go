package azure

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/mysql/armmysqlflexibleservers/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/postgresql/armpostgresqlflexibleservers/v5"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
)

// offers are what a region has of flexible servers now.
type offers struct {
	versions []string // as people name them, the newest first
	classes  []dataClass
	zonal    bool             // a standby in another zone is offered at all
	storage  map[string][]int // GiB that a tier takes, ascending: the sizes, or the least and the most
	steps    bool             // only the sizes themselves are taken
}

// A dataClass is one class of server.
type dataClass struct {
	name, tier string
	vcpus      int
	memoryGiB  float64
	zones      []string
	standby    bool // one in another zone can be had
}

// tierRank orders the tiers by what they cost.
var tierRank = map[string]int{"Burstable": 0, "GeneralPurpose": 1, "MemoryOptimized": 2, "BusinessCritical": 2}

// offers asks what the region has ("Capabilities By Location - List", "Location
// Based Capability Set - List").
func (p *Provider) offers(ctx context.Context, f flavour) (offers, error) {
	return lookup.Once(ctx, "offers of "+f.typ, func(ctx context.Context) (offers, error) {
		at := managementPrefix + p.subscription + "/providers/" + f.provider() + "/locations/" + regionName(p.region)
		if f.engine == job.MySQL {
			all, err := list[armmysqlflexibleservers.Capability](ctx, p, at+"/capabilitySets")
			return mysqlOffers(all), err
		}
		all, err := list[armpostgresqlflexibleservers.Capability](ctx, p, at+"/capabilities")
		return postgresOffers(all), err
	})
}

func postgresOffers(all []armpostgresqlflexibleservers.Capability) offers {
	out := offers{storage: map[string][]int{}, steps: true}
	usable := func(s *armpostgresqlflexibleservers.CapabilityStatus) bool {
		return s == nil || *s == armpostgresqlflexibleservers.CapabilityStatusAvailable || *s == armpostgresqlflexibleservers.CapabilityStatusDefault
	}
	for _, c := range all {
		out.zonal = out.zonal || value(c.ZoneRedundantHaSupported) == armpostgresqlflexibleservers.ZoneRedundantHighAvailabilitySupportEnabled
		for _, v := range c.SupportedServerVersions {
			if usable(v.Status) {
				out.versions = append(out.versions, value(v.Name))
			}
		}
		for _, e := range c.SupportedServerEditions {
			if !usable(e.Status) {
				continue
			}
			tier := value(e.Name)
			for _, s := range e.SupportedServerSKUs {
				if !usable(s.Status) || strings.Contains(value(s.SecurityProfile), "Confidential") {
					continue
				}
				out.classes = append(out.classes, dataClass{
					name: value(s.Name), tier: tier, vcpus: int(value(s.VCores)), memoryGiB: float64(value(s.SupportedMemoryPerVcoreMb)) * float64(value(s.VCores)) / 1024,
					zones: values(s.SupportedZones), standby: slices.Contains(values(s.SupportedHaMode), armpostgresqlflexibleservers.HighAvailabilityModeZoneRedundant),
				})
			}
			for _, g := range e.SupportedStorageEditions {
				if name := value(g.Name); name != "" && name != "ManagedDisk" {
					continue // the others are billed by speed, which has to be given
				}
				for _, size := range g.SupportedStorageMb {
					if usable(size.Status) {
						out.storage[tier] = append(out.storage[tier], int(value(size.StorageSizeMb)/1024))
					}
				}
			}
		}
	}
	return out.inOrder()
}

func mysqlOffers(all []armmysqlflexibleservers.Capability) offers {
	out := offers{storage: map[string][]int{}}
	for _, c := range all {
		f := value(c.Properties)
		for _, v := range f.SupportedServerVersions {
			out.versions = append(out.versions, minorOf(value(v.Name)))
		}
		for _, e := range f.SupportedFlexibleServerEditions {
			tier := value(e.Name)
			for _, s := range e.SupportedSKUs {
				standby := slices.Contains(values(s.SupportedHAMode), "ZoneRedundant")
				out.zonal = out.zonal || standby
				out.classes = append(out.classes, dataClass{
					name: value(s.Name), tier: tier, vcpus: int(value(s.VCores)), memoryGiB: float64(value(s.SupportedMemoryPerVCoreMB)) * float64(value(s.VCores)) / 1024,
					zones: values(s.SupportedZones), standby: standby,
				})
			}
			for _, g := range e.SupportedStorageEditions {
				out.storage[tier] = append(out.storage[tier], int(value(g.MinStorageSize)/1024), int(value(g.MaxStorageSize)/1024))
			}
		}
	}
	return out.inOrder()
}

// inOrder sorts what is offered: the newest version and the cheapest class first.
func (o offers) inOrder() offers {
	slices.SortFunc(o.versions, func(a, b string) int { return strings.Compare(padded(b), padded(a)) })
	o.versions = slices.Compact(o.versions)
	slices.SortFunc(o.classes, func(a, b dataClass) int {
		return cmp.Or(cmp.Compare(tierRank[a.tier], tierRank[b.tier]), cmp.Compare(a.vcpus, b.vcpus), cmp.Compare(a.memoryGiB, b.memoryGiB),
			cmp.Compare(generation(b.name), generation(a.name)), strings.Compare(a.name, b.name))
	})
	for tier := range o.storage {
		slices.Sort(o.storage[tier])
		o.storage[tier] = slices.Compact(o.storage[tier])
	}
	return o
}

var generationRE = regexp.MustCompile(`_v([0-9]+)$`)

// generation is the number at the end of a class's name; later ones cost no more.
func generation(class string) int {
	m := generationRE.FindStringSubmatch(class)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1]) // it is digits
	return n
}

// smallest is the cheapest class that has what is asked for.
func (o offers) smallest(size job.Size, standby bool) (dataClass, bool) {
	i := slices.IndexFunc(o.classes, func(c dataClass) bool {
		return c.vcpus >= size.VCPUs && c.memoryGiB >= float64(size.MemoryGiB) && (!standby || c.standby)
	})
	if i < 0 {
		return dataClass{}, false
	}
	return o.classes[i], true
}

// class finds a class by its name.
func (o offers) class(name string) (dataClass, bool) {
	i := slices.IndexFunc(o.classes, func(c dataClass) bool { return same(c.name, name) })
	if i < 0 {
		return dataClass{}, false
	}
	return o.classes[i], true
}

// like names some classes near one that is not offered.
func (o offers) like(name string) string {
	family := name[:min(len(name), len("Standard_D"))]
	var near, rest []string
	for _, c := range o.classes {
		if strings.HasPrefix(c.name, family) {
			near = append(near, c.name)
		} else {
			rest = append(rest, c.name)
		}
	}
	all := append(near, rest...)
	return strings.Join(all[:min(len(all), 6)], ", ")
}

// room is the storage of a tier that has a number of GiB: the next of its sizes.
func (o offers) room(tier string, gib int) (int, string) {
	sizes := o.storage[tier]
	if len(sizes) == 0 {
		return gib, ""
	}
	least, most := sizes[0], sizes[len(sizes)-1]
	if gib > most {
		return 0, fmt.Sprintf("%d to %d GiB", least, most)
	}
	if !o.steps {
		return max(gib, least), ""
	}
	return sizes[slices.IndexFunc(sizes, func(n int) bool { return n >= gib })], ""
}

// standardEnds is when the standard support of a version ends; the API says what is
// offered, and not until when ("Azure Database for PostgreSQL versions", "Azure
// Database for MySQL version support policy"). MySQL's releases of innovation are
// none for data that is to stay.
var standardEnds = map[job.Engine]map[string]string{
	job.Postgres: {"11": "2026-07-31", "12": "2026-07-31", "13": "2026-07-31", "14": "2026-11-12", "15": "2027-11-11", "16": "2028-11-09", "17": "2029-11-08", "18": "2030-11-14"},
	job.MySQL:    {"5.7": "2023-10-31", "8.0": "2026-12-31", "8.4": "2032-04-30"},
}

// supported reports whether a version is in standard support on a day, and until when.
func supported(e job.Engine, version, today string) (in bool, until string) {
	until, known := standardEnds[e][version]
	if !known {
		return e == job.Postgres, "" // a major version of PostgreSQL that is newer than the table
	}
	return today <= until, until
}

// newest is the newest version in standard support.
func (o offers) newest(e job.Engine, today string) string {
	for _, v := range o.versions {
		if in, _ := supported(e, v, today); in {
			return v
		}
	}
	return ""
}
