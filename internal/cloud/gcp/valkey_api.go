package gcp

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/zopday/provisioner/internal/cloud/lookup"
)

const kindValkey = "memorystore:instance"

// valkeyInstance is an instance of Memorystore for Valkey, as far as it is of
// interest ("REST Resource: projects.locations.instances", Memorystore API v1).
type valkeyInstance struct {
	Name                  string             `json:"name,omitempty"`
	Labels                map[string]string  `json:"labels,omitempty"`
	State                 string             `json:"state,omitempty"`
	Mode                  string             `json:"mode,omitempty"`
	ShardCount            int                `json:"shardCount,omitempty"`
	ReplicaCount          int                `json:"replicaCount"`
	NodeType              string             `json:"nodeType,omitempty"`
	NodeConfig            *valkeyNode        `json:"nodeConfig,omitempty"`
	EngineVersion         string             `json:"engineVersion,omitempty"`
	AuthorizationMode     string             `json:"authorizationMode,omitempty"`
	TransitEncryptionMode string             `json:"transitEncryptionMode,omitempty"`
	DeletionProtection    bool               `json:"deletionProtectionEnabled"`
	Persistence           *valkeyPersistence `json:"persistenceConfig,omitempty"`
	Zones                 *valkeyZones       `json:"zoneDistributionConfig,omitempty"`
	Maintenance           *valkeyMaintenance `json:"maintenancePolicy,omitempty"`
	Endpoints             []valkeyEndpoint   `json:"endpoints,omitempty"`
}

type valkeyNode struct {
	SizeGB float64 `json:"sizeGb"`
}

type valkeyPersistence struct {
	Mode string     `json:"mode"`
	RDB  *valkeyRDB `json:"rdbConfig,omitempty"`
}

type valkeyRDB struct {
	Period string `json:"rdbSnapshotPeriod"`
}

type valkeyZones struct {
	Mode string `json:"mode"`
	Zone string `json:"zone,omitempty"`
}

type valkeyMaintenance struct {
	Windows []valkeyWindow `json:"weeklyMaintenanceWindow"`
}

type valkeyWindow struct {
	Day   string `json:"day"`
	Start struct {
		Hours int `json:"hours"`
	} `json:"startTime"`
}

type valkeyEndpoint struct {
	Connections []valkeyConnection `json:"connections"`
}

type valkeyConnection struct {
	Auto *valkeyPSC `json:"pscAutoConnection,omitempty"`
}

type valkeyPSC struct {
	Network   string `json:"network"`
	ProjectID string `json:"projectId"`
	IPAddress string `json:"ipAddress,omitempty"`
	Port      int    `json:"port,omitempty"`
	Type      string `json:"connectionType,omitempty"`
}

func (p *Provider) readValkey(ctx context.Context, id string) (*valkeyInstance, error) {
	return lookup.Once(ctx, kindValkey+" "+id, func(ctx context.Context) (*valkeyInstance, error) {
		x := new(valkeyInstance)
		return x, p.data.memorystore.do(ctx, http.MethodGet, id, nil, nil, x)
	})
}

// valkeys are the instances of the region.
func (p *Provider) valkeys(ctx context.Context) ([]*valkeyInstance, error) {
	return lookup.Pages(ctx, func(ctx context.Context, token *string) ([]*valkeyInstance, *string, error) {
		var page struct {
			Instances     []*valkeyInstance `json:"instances"`
			NextPageToken string            `json:"nextPageToken"`
		}
		err := p.data.memorystore.do(ctx, http.MethodGet, p.clusterParent()+"/instances", url.Values{"pageToken": {text(token)}}, nil, &page)
		return page.Instances, &page.NextPageToken, err
	})
}

// ownValkeys is the kind for a scan.
func (p *Provider) ownValkeys() lookup.Kind[*valkeyInstance] {
	mark := func(x *valkeyInstance) (string, string) { return labelMark(x.Labels) }
	return lookup.Kind[*valkeyInstance]{
		Name: kindValkey, Mark: mark, One: p.readValkey, ID: func(x *valkeyInstance) string { return p.clusterParent() + "/instances/" + base(x.Name) },
		List: func(ctx context.Context, owner string) ([]*valkeyInstance, error) {
			all, err := p.valkeys(ctx)
			return slices.DeleteFunc(all, func(x *valkeyInstance) bool {
				who, _ := mark(x)
				return who != owner || x.State == "DELETING"
			}), err
		},
	}
}

// valkeyCA is who signs the server's certificate, PEM.
func (p *Provider) valkeyCA(ctx context.Context, id string) (string, error) {
	var out struct {
		Managed struct {
			Certs []struct {
				Certificates []string `json:"certificates"`
			} `json:"caCerts"`
		} `json:"managedServerCa"`
	}
	if err := p.data.memorystore.do(ctx, http.MethodGet, id+"/certificateAuthority", nil, nil, &out); err != nil {
		return "", err
	}
	var text strings.Builder
	for _, c := range out.Managed.Certs {
		for _, pem := range c.Certificates {
			text.WriteString(pem)
		}
	}
	return text.String(), nil
}

// changeValkey makes, changes or deletes an instance, and names the operation.
func (p *Provider) changeValkey(ctx context.Context, method, path string, query url.Values, x any) (string, error) {
	var op longRunning
	err := p.data.memorystore.do(ctx, method, path, query, x, &op)
	return op.Name, err
}
