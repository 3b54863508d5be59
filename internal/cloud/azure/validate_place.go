package azure

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

var (
	validName = regexp.MustCompile(`^[a-z][a-z0-9-]*[a-z0-9]$`)
	badInTag  = regexp.MustCompile(`[<>%&\\?/]`)
)

// A location is a region as a subscription sees it ("Subscriptions - List
// Locations").
type location struct {
	Name        string `json:"name"`
	DisplayName string `json:"displayName"`
	Metadata    struct {
		RegionType string `json:"regionType"` // Physical or Logical
	} `json:"metadata"`
	Zones []struct {
		Logical string `json:"logicalZone"`
	} `json:"availabilityZoneMappings"`
}

// place checks the region, and chooses the zones: as many of its zones as the
// job asks for. A region without any is told and used all the same.
func (c *checker) place(ctx context.Context) ([]cloud.Check, error) {
	const check = "region"
	all, err := list[location](ctx, c.Provider, managementPrefix+c.subscription+"/locations")
	if err != nil {
		return c.need(ctx, check, "region", err)
	}
	i := slices.IndexFunc(all, func(l location) bool { return regionName(l.Name) == regionName(c.region) })
	if i < 0 || all[i].Metadata.RegionType == "Logical" {
		return []cloud.Check{fails(check, "region", fmt.Sprintf("%q is not a region of this subscription", c.region), "Use a region's name such as eastus2 (az account list-locations).")}, nil
	}
	at := all[i]
	var zones []string
	for _, z := range at.Zones {
		zones = append(zones, z.Logical)
	}
	slices.Sort(zones)
	out := []cloud.Check{passes(check, "%s (%s)", at.Name, at.DisplayName)}
	switch want := max(c.net.Zones, 2); {
	case len(c.ic.Zones) > 0: // resolved before, and kept
	case len(zones) == 0:
		out = append(out, warns("zones", "region", at.DisplayName+" has no availability zones, so the loss of its one data centre is the loss of everything", "Choose a region with zones."))
	case len(zones) < want:
		c.ic.Zones = zones
		out = append(out, warns("zones", "config.spec.network.zones", fmt.Sprintf("%s has %d zones, and %d are asked for", at.DisplayName, len(zones), want), ""))
	default:
		c.ic.Zones = zones[:want]
		out = append(out, passes("zones", "%s", strings.Join(c.ic.Zones, ", ")))
	}
	if c.net.NAT == job.NATPerZone {
		out = append(out, warns("NAT", "config.spec.network.nat", "a subnet spans all zones here and takes one NAT gateway; it stands in all zones at once, so there is one", "Use nat: single."))
	}
	return out, nil
}

// needed are the resource providers that a job's objects belong to.
func (c *checker) needed() []string {
	out := []string{"Microsoft.Network"}
	if c.r.Job.ResourceType == job.VM {
		out = append(out, "Microsoft.Compute", "Microsoft.ManagedIdentity")
		if spec, err := c.r.Job.VMSpec(); err == nil && spec.Pool.Mode == job.PoolASG {
			out = append(out, "Microsoft.Insights")
		}
	}
	if c.r.Job.ResourceType == job.Cluster {
		out = append(out, "Microsoft.Compute", "Microsoft.ManagedIdentity", "Microsoft.ContainerService", "Microsoft.OperationalInsights", "Microsoft.Insights", "Microsoft.PolicyInsights")
	}
	return append(out, c.storeProviders()...)
}

// providers checks that the subscription has the resource providers registered:
// without, every create is refused (MissingSubscriptionRegistration).
func (c *checker) providers(ctx context.Context) ([]cloud.Check, error) {
	const check = "resource providers"
	var missing []string
	for _, name := range c.needed() {
		var x struct {
			State string `json:"registrationState"`
		}
		if err := c.get(ctx, managementPrefix+c.subscription+"/providers/"+name, &x); err != nil {
			return c.or(ctx, check, "cloudAccountId", err)
		}
		if x.State != "Registered" {
			missing = append(missing, fmt.Sprintf("%s is %s", name, x.State))
		}
	}
	if len(missing) > 0 {
		name, _, _ := strings.Cut(missing[0], " ")
		return []cloud.Check{fails(check, "cloudAccountId", "the subscription does not have what is needed: "+strings.Join(missing, ", "),
			"Register it (az provider register --namespace "+name+"), and wait until it says Registered.")}, nil
	}
	return []cloud.Check{passes(check, "%s", strings.Join(c.needed(), ", "))}, nil
}

// groups checks the resource group: that a named one is there, and that nobody
// else has the name of one to make (failure kind B5).
func (c *checker) groups(ctx context.Context) ([]cloud.Check, error) {
	const check = "resource group"
	name := groupOf(c.r.Job)
	x, err := read[struct{}](ctx, c.Provider, c.groupID(name))
	there := err == nil
	if err := pipeline.Unless(err, pipeline.NotFound); err != nil {
		return c.or(ctx, check, "", err)
	}
	switch {
	case !ownsGroup(c.r.Job) && !there:
		return []cloud.Check{fails(check, "config.spec.existing.resourceGroup", "there is no resource group "+name+" in the subscription", "Name one that exists.")}, nil
	case ownsGroup(c.r.Job) && there && x.Tags[job.MarkOwner] != c.r.Job.ID:
		return []cloud.Check{fails(check, "name", "a resource group named "+name+" exists and is somebody else's", "Rename or remove it, or give the job another name.")}, nil
	}
	return []cloud.Check{passes(check, "%s", name)}, nil
}
