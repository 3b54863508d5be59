package azure

import (
	"strings"
	"time"

	simazure "github.com/zopday/provisioner/internal/sim/azure"
)

// put makes something behind the job's back, finished at once.
func (g *rig) put(id string, body map[string]any) {
	g.Helper()
	g.invoke("PUT", id, body)
}

func (g *rig) invoke(method, id string, body map[string]any) {
	g.Helper()
	if _, err := g.world.Invoke("azure", serviceOf(id), method, simazure.DefaultSubscription, "", map[string]any{"id": id, "body": body}); err != nil {
		g.Fatalf("%s %s: %v", method, id, err)
	}
}

// serviceOf is the shelf of the simulation that an ID belongs to.
func serviceOf(id string) string {
	switch service, op := action("PUT", id); service {
	case "Microsoft.Network":
		if strings.HasPrefix(op, "dnsZones") {
			return "dns"
		}
		return "network"
	case "Microsoft.Authorization":
		if strings.HasPrefix(op, "role") {
			return "authorization"
		}
		return "locks"
	case "Microsoft.Compute":
		return "compute"
	case "Microsoft.Insights":
		return "insights"
	case "Microsoft.ContainerService":
		return "containerservice"
	case "Microsoft.DBforPostgreSQL":
		return "postgresql"
	case "Microsoft.DBforMySQL":
		return "mysql"
	case "Microsoft.Cache":
		return "cache"
	case "Microsoft.KeyVault":
		return "keyvault"
	case "Microsoft.OperationalInsights":
		return "operationalinsights"
	}
	return "resources"
}

const theirs = "/subscriptions/" + simazure.DefaultSubscription + "/resourceGroups/theirs"

// theirVNet makes somebody else's VNet with one subnet, and returns its ID.
func (g *rig) theirVNet(name, cidr, subnet string) string {
	g.Helper()
	if !g.exists(theirs) {
		g.put(theirs, map[string]any{"location": "eastus2"})
	}
	id := theirs + "/providers/" + typeVNet + "/" + name
	g.put(id, map[string]any{"location": "eastus2", "properties": map[string]any{
		"addressSpace": map[string]any{"addressPrefixes": []any{cidr}},
		"subnets":      []any{map[string]any{"name": "apps", "properties": map[string]any{"addressPrefix": subnet, "defaultOutboundAccess": false}}},
	}})
	g.world.Step(5 * time.Minute) // it is there since long, and on every list
	return id
}
