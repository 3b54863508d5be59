package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/components"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/kube"
	"github.com/zopday/provisioner/internal/provision"
)

const (
	tagSpaces     = "Spaces"
	tagComponents = "Components"
	tagClusters   = "Clusters"
)

// SpaceID is the path parameter of everything about one space.
type SpaceID struct {
	ID string `path:"id" doc:"The space's ID or its name"`
}

// ClusterPath is the path parameters of everything about a cluster at a cloud.
type ClusterPath struct {
	ID     string `path:"id" doc:"The cloud account"`
	Region string `path:"region" doc:"The cluster's region"`
	Name   string `path:"name" doc:"The cluster's name"`
}

type spaceOut struct {
	Status   int
	Location string `header:"Location" doc:"Where the space is found"`
	Body     Data[*provision.Space]
}

func (s *server) spaceRoutes() {
	type listIn struct {
		Limit  int    `query:"limit" minimum:"1" maximum:"500" default:"100" doc:"Spaces a page"`
		Cursor string `query:"cursor" maxLength:"200" doc:"nextCursor of the page before"`
	}
	type listOut struct{ Body List[provision.Space] }
	route(s, huma.Operation{
		OperationID: "list-spaces", Method: http.MethodGet, Path: "/spaces", Tags: []string{tagSpaces},
		Summary: "List spaces", Description: "What can be deployed to, the newest first.", Errors: []int{422, 503},
	}, []access.Policy{access.SpaceView}, func(ctx context.Context, in *listIn) (*listOut, error) {
		if err := plainText(in.Cursor); err != nil {
			return nil, err
		}
		items, next, err := s.Service.ListSpaces(ctx, in.Limit, in.Cursor)
		if err != nil {
			return nil, err
		}
		return &listOut{listOf(items, next)}, nil
	})
	s.registerRoute()

	route(s, huma.Operation{
		OperationID: "get-space", Method: http.MethodGet, Path: "/spaces/{id}", Tags: []string{tagSpaces}, Summary: "Get a space", Errors: []int{404, 503},
	}, []access.Policy{access.SpaceView}, func(ctx context.Context, in *SpaceID) (*spaceOut, error) {
		v, err := s.Service.GetSpace(ctx, in.ID)
		if err != nil {
			return nil, err
		}
		return &spaceOut{Status: http.StatusOK, Location: "/spaces/" + v.ID, Body: Data[*provision.Space]{Data: v}}, nil
	})
	route(s, huma.Operation{
		OperationID: "forget-space", Method: http.MethodDelete, Path: "/spaces/{id}", Tags: []string{tagSpaces}, DefaultStatus: http.StatusNoContent,
		Summary:     "Forget a space",
		Description: "The pointer alone: nothing of what is behind it is touched. Refused while component jobs are on it.", Errors: []int{404, 409, 503},
	}, []access.Policy{access.SpaceManage}, func(ctx context.Context, in *SpaceID) (*struct{}, error) {
		return nil, s.Service.DeleteSpace(ctx, in.ID)
	})
	s.namespaceRoutes()
	s.accessRoutes()
}

func (s *server) registerRoute() {
	type createIn struct {
		RawBody []byte `contentType:"application/json"`
	}
	route(s, huma.Operation{
		OperationID: "register-space", Method: http.MethodPost, Path: "/spaces", Tags: []string{tagSpaces}, DefaultStatus: http.StatusCreated,
		Summary:     "Register a cluster that exists as a space",
		Description: "The cluster is read and not changed. The same cluster again gives the same space.", Errors: []int{404, 413, 415, 422, 503},
	}, []access.Policy{access.SpaceManage}, func(ctx context.Context, in *createIn) (*spaceOut, error) {
		var r provision.SpaceRequest
		if err := s.decode(ctx, access.SpaceManage, "", in.RawBody, &r); err != nil {
			return nil, err
		}
		v, created, err := s.Service.RegisterSpace(ctx, r)
		if err != nil {
			return nil, err
		}
		status := http.StatusOK
		if created {
			status = http.StatusCreated
		}
		return &spaceOut{Status: status, Location: "/spaces/" + v.ID, Body: Data[*provision.Space]{Data: v}}, nil
	})
	bodyOf[provision.SpaceRequest](s, "/spaces", http.MethodPost)
}

func (s *server) namespaceRoutes() {
	type listOut struct{ Body List[kube.Namespace] }
	route(s, huma.Operation{
		OperationID: "list-namespaces", Method: http.MethodGet, Path: "/spaces/{id}/namespaces", Tags: []string{tagSpaces},
		Summary: "List the namespaces of a space's cluster", Errors: []int{404, 409, 503},
	}, []access.Policy{access.SpaceView}, func(ctx context.Context, in *SpaceID) (*listOut, error) {
		items, err := s.Service.Namespaces(ctx, in.ID)
		if err != nil {
			return nil, err
		}
		return &listOut{listOf(items, "")}, nil
	})
	type createIn struct {
		SpaceID
		RawBody []byte `contentType:"application/json"`
	}
	type createOut struct{ Body Data[*kube.Namespace] }
	route(s, huma.Operation{
		OperationID: "create-namespace", Method: http.MethodPost, Path: "/spaces/{id}/namespaces", Tags: []string{tagSpaces}, DefaultStatus: http.StatusCreated,
		Summary: "Make a namespace in a space's cluster", Description: "With pod security labels at the level baseline, as warnings.", Errors: []int{404, 409, 413, 415, 422, 503},
	}, []access.Policy{access.SpaceManage}, func(ctx context.Context, in *createIn) (*createOut, error) {
		var r provision.NamespaceRequest
		if err := s.decode(ctx, access.SpaceManage, in.ID, in.RawBody, &r); err != nil {
			return nil, err
		}
		v, err := s.Service.CreateNamespace(ctx, in.ID, r)
		if err != nil {
			return nil, err
		}
		return &createOut{Data[*kube.Namespace]{Data: v}}, nil
	})
	bodyOf[provision.NamespaceRequest](s, "/spaces/{id}/namespaces", http.MethodPost)
}

func (s *server) accessRoutes() {
	const path = "/cloud-accounts/{id}/clusters/{region}/{name}/access"
	type putIn struct {
		ClusterPath
		RawBody []byte `contentType:"application/json"`
	}
	route(s, huma.Operation{
		OperationID: "grant-cluster-access", Method: http.MethodPut, Path: path, Tags: []string{tagClusters}, DefaultStatus: http.StatusNoContent,
		Summary:     "Let somebody use a cluster",
		Description: "The provisioner itself, if no principal is named: a cluster that exists already may not know it. May be repeated.", Errors: []int{404, 413, 415, 422, 503},
	}, []access.Policy{access.CloudAccountManage}, func(ctx context.Context, in *putIn) (*struct{}, error) {
		var r provision.AccessRequest
		if err := s.decode(ctx, access.CloudAccountManage, in.ID, in.RawBody, &r); err != nil {
			return nil, err
		}
		return nil, s.Service.ClusterAccess(ctx, in.ID, in.Region, in.Name, r, false)
	})
	bodyOf[provision.AccessRequest](s, path, http.MethodPut)
	type deleteIn struct {
		ClusterPath
		Provider      string `query:"provider" required:"true" enum:"aws,gcp,azure"`
		Principal     string `query:"principal" maxLength:"2048" doc:"Who is let in no more; the provisioner itself by default"`
		ResourceGroup string `query:"resourceGroup" maxLength:"90" doc:"Azure: the cluster's resource group"`
	}
	route(s, huma.Operation{
		OperationID: "revoke-cluster-access", Method: http.MethodDelete, Path: path, Tags: []string{tagClusters}, DefaultStatus: http.StatusNoContent,
		Summary: "Take somebody's access to a cluster back", Description: "May be repeated.", Errors: []int{404, 422, 503},
	}, []access.Policy{access.CloudAccountManage}, func(ctx context.Context, in *deleteIn) (*struct{}, error) {
		if err := plainText(in.Principal, in.ResourceGroup); err != nil {
			return nil, err
		}
		r := provision.AccessRequest{Provider: job.Provider(in.Provider), Principal: in.Principal, ResourceGroup: in.ResourceGroup}
		return nil, s.Service.ClusterAccess(ctx, in.ID, in.Region, in.Name, r, true)
	})
}

func (s *server) componentRoutes() {
	type listIn struct {
		Search      string `query:"search" maxLength:"100" doc:"Words of the name, the title, the description or the category"`
		Category    string `query:"category" maxLength:"40"`
		Provider    string `query:"provider" enum:"aws,gcp,azure" doc:"Components that are for this cloud"`
		KubeVersion string `query:"kubeVersion" maxLength:"40" doc:"Components that support this version, such as 1.35"`
	}
	type listOut struct{ Body List[provision.Component] }
	route(s, huma.Operation{
		OperationID: "list-components", Method: http.MethodGet, Path: "/catalog/components", Tags: []string{tagComponents},
		Summary: "List the components that can be installed", Errors: []int{422},
	}, []access.Policy{access.ComponentView}, func(ctx context.Context, in *listIn) (*listOut, error) {
		if err := plainText(in.Search, in.Category, in.KubeVersion); err != nil {
			return nil, err
		}
		items, err := s.Service.Catalogue(ctx, components.Query{Search: in.Search, Category: in.Category, Provider: job.Provider(in.Provider), KubeVersion: in.KubeVersion})
		if err != nil {
			return nil, err
		}
		return &listOut{listOf(items, "")}, nil
	})
	type getIn struct {
		ID string `path:"id" doc:"The component's name"`
	}
	type getOut struct {
		Body Data[*provision.ComponentView]
	}
	route(s, huma.Operation{
		OperationID: "get-component", Method: http.MethodGet, Path: "/catalog/components/{id}", Tags: []string{tagComponents},
		Summary: "Get a component, with the schema of its values", Errors: []int{404},
	}, []access.Policy{access.ComponentView}, func(ctx context.Context, in *getIn) (*getOut, error) {
		v, err := s.Service.CatalogueEntry(ctx, in.ID)
		if err != nil {
			return nil, err
		}
		return &getOut{Data[*provision.ComponentView]{Data: v}}, nil
	})

	type diffIn struct {
		JobID
		RawBody []byte `contentType:"application/json"`
	}
	type diffOut struct{ Body List[components.Change] }
	route(s, huma.Operation{
		OperationID: "diff-component", Method: http.MethodPost, Path: "/provisioning-jobs/{id}/diff", Tags: []string{tagComponents},
		Summary:     "Show what an upgrade would change in the cluster",
		Description: `The body is {"spec":{"component":{…}}}, as in the upgrade; {} compares with the spec as it is. Contents of Secrets are masked. Nothing is changed.`,
		Errors:      []int{404, 409, 413, 415, 422, 503},
	}, []access.Policy{access.ComponentView}, func(ctx context.Context, in *diffIn) (*diffOut, error) {
		var r provision.ConfigRequest
		if err := provision.Decode(in.RawBody, &r); err != nil {
			return nil, err
		}
		items, err := s.Service.Diff(ctx, in.ID, r)
		if err != nil {
			return nil, err
		}
		return &diffOut{listOf(items, "")}, nil
	})
	bodyOf[provision.ConfigRequest](s, "/provisioning-jobs/{id}/diff", http.MethodPost)
}
