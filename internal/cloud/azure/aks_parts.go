package azure

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	aks "github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/containerservice/armcontainerservice/v9"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/monitor/armmonitor"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/operationalinsights/armoperationalinsights/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources/v4"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// windows are when AKS upgrades by itself: a night of the weekend, in universal
// time. The names are AKS' own ("Use planned maintenance to schedule and control
// upgrades for your AKS cluster"); the shortest window is four hours.
var windows = []struct {
	key, name string
	day       aks.WeekDay
}{
	{"upgrades", "aksManagedAutoUpgradeSchedule", aks.WeekDaySunday},
	{"node-os-upgrades", "aksManagedNodeOSUpgradeSchedule", aks.WeekDaySaturday},
}

const (
	windowStart = "01:00"
	windowHours = 4
)

func (p *Provider) maintenanceID(r *pipeline.Run, name string) string {
	return p.clusterID(r) + "/maintenanceConfigurations/" + name
}

// maintenance is the window of one schedule. Who moves it has a reason: a run
// leaves it, and a verify shows it.
func (p *Provider) maintenance(r *pipeline.Run, key, name string, day aks.WeekDay) object[aks.MaintenanceConfiguration] {
	want := aks.MaintenanceWindow{
		DurationHours: new(int32(windowHours)), StartTime: new(windowStart), UTCOffset: new("+00:00"),
		Schedule: &aks.Schedule{Weekly: &aks.WeeklySchedule{DayOfWeek: &day, IntervalWeeks: new(int32(1))}},
	}
	return object[aks.MaintenanceConfiguration]{
		p: p, r: r, kind: kindMaintenance, key: key, id: p.maintenanceID(r, name),
		body: func() any {
			return aks.MaintenanceConfiguration{Properties: &aks.MaintenanceConfigurationProperties{MaintenanceWindow: &want}}
		},
		owner: p.ofCluster(r),
		see: func(_ context.Context, x resource[aks.MaintenanceConfiguration]) ([]pipeline.Aspect, error) {
			seen := value(x.is.Properties).MaintenanceWindow
			return watched(r, pipeline.Aspect{Name: "window", Wanted: windowText(&want), Seen: windowText(seen)}), nil
		},
	}
}

func windowText(w *aks.MaintenanceWindow) string {
	if w == nil {
		return "none"
	}
	when := "another schedule"
	switch s := value(w.Schedule); {
	case s.Weekly != nil:
		when = fmt.Sprintf("every %d weeks on %s", value(s.Weekly.IntervalWeeks), value(s.Weekly.DayOfWeek))
	case s.Daily != nil:
		when = fmt.Sprintf("every %d days", value(s.Daily.IntervalDays))
	}
	return fmt.Sprintf("%s from %s %s for %d hours", when, value(w.StartTime), cmp.Or(value(w.UTCOffset), "+00:00"), value(w.DurationHours))
}

// ofCluster is the owner of what lies in the job's cluster and has no tags of its
// own: whoever owns the cluster.
func (p *Provider) ofCluster(r *pipeline.Run) func(context.Context, resource[aks.MaintenanceConfiguration]) (string, error) {
	return func(ctx context.Context, _ resource[aks.MaintenanceConfiguration]) (string, error) {
		return p.ownerOfCluster(ctx, r)
	}
}

func (p *Provider) ownerOfCluster(ctx context.Context, r *pipeline.Run) (string, error) {
	parent, err := read[aks.ManagedCluster](ctx, p, p.clusterID(r))
	if pipeline.Is(err, pipeline.NotFound) {
		return r.Job.ID, nil // it is gone, and its name is the job's alone
	}
	return cmp.Or(parent.Tags[job.MarkOwner], pipeline.Unmarked), err
}

// retentionDays is how long what the API server was asked for is kept.
const retentionDays = 90

// workspace is where the cluster's audit log goes.
func (p *Provider) workspace(r *pipeline.Run) object[armoperationalinsights.Workspace] {
	fill := func(w *armoperationalinsights.Workspace) {
		part(&w.Properties).RetentionInDays = new(int32(retentionDays))
	}
	return object[armoperationalinsights.Workspace]{
		p: p, r: r, kind: kindWorkspace, key: "logs", id: p.idIn(r, typeWorkspace, r.Job.ResourceName("logs", longestWorkspace)),
		body: func() any {
			w := armoperationalinsights.Workspace{
				Location: &p.region, Tags: tagsFor(r.Job, "logs"),
				Properties: &armoperationalinsights.WorkspaceProperties{
					SKU: &armoperationalinsights.WorkspaceSKU{Name: new(armoperationalinsights.WorkspaceSKUNameEnumPerGB2018)},
					// Who may read the cluster may read its log; shared keys are no way in.
					Features: &armoperationalinsights.WorkspaceFeatures{EnableLogAccessUsingOnlyResourcePermissions: new(true), DisableLocalAuth: new(true)},
				},
			}
			fill(&w)
			return w
		},
		see: func(_ context.Context, x resource[armoperationalinsights.Workspace]) ([]pipeline.Aspect, error) {
			seen := fmt.Sprint(value(value(x.is.Properties).RetentionInDays))
			return []pipeline.Aspect{{Name: "retention in days", Wanted: fmt.Sprint(retentionDays), Seen: seen, Set: func(ctx context.Context) error {
				fixed := x.is
				fill(&fixed)
				return p.update(ctx, r, x.meta, fixed)
			}}}, nil
		},
	}
}

// audited are the categories of the API server's log that say who asked for what:
// without the reads, of which there are very many ("Monitor AKS data reference").
var audited = []string{"kube-audit-admin", "guard"}

// diagnostic sends the cluster's audit log to the workspace. It has no mark of its
// own and hangs on the cluster; one that outlives it would be in force again for a
// namesake ("Diagnostic settings in Azure Monitor").
func (p *Provider) diagnostic(r *pipeline.Run) object[armmonitor.DiagnosticSettingsResource] {
	workspace := p.workspace(r).id
	fill := func(s *armmonitor.DiagnosticSettings) {
		s.WorkspaceID, s.LogAnalyticsDestinationType = &workspace, new("Dedicated")
		for _, category := range audited {
			if !sends(*s, category) {
				s.Logs = append(s.Logs, &armmonitor.LogSettings{Category: &category, Enabled: new(true)})
			}
		}
	}
	id := p.clusterID(r) + "/providers/" + typeDiagnostic + "/" + r.Job.ResourceName("audit", longestSetting)
	return object[armmonitor.DiagnosticSettingsResource]{
		p: p, r: r, kind: kindDiagnostic, key: "audit", id: id,
		body: func() any {
			s := &armmonitor.DiagnosticSettings{}
			fill(s)
			return armmonitor.DiagnosticSettingsResource{Properties: s}
		},
		owner: func(ctx context.Context, _ resource[armmonitor.DiagnosticSettingsResource]) (string, error) {
			return p.ownerOfCluster(ctx, r)
		},
		see: func(_ context.Context, x resource[armmonitor.DiagnosticSettingsResource]) ([]pipeline.Aspect, error) {
			f := value(x.is.Properties)
			set := func(ctx context.Context) error {
				fixed := f
				fill(&fixed)
				at := x.meta
				at.ID = id
				return p.update(ctx, r, at, armmonitor.DiagnosticSettingsResource{Properties: &fixed})
			}
			var seen []string
			for _, category := range audited {
				if sends(f, category) {
					seen = append(seen, category)
				}
			}
			return []pipeline.Aspect{
				{Name: "categories", Wanted: sorted(audited), Seen: sorted(seen), Set: set},
				{Name: "workspace", Wanted: strings.ToLower(workspace), Seen: strings.ToLower(value(f.WorkspaceID)), Set: set},
			}, nil
		},
	}
}

// sends reports whether a setting sends a category.
func sends(s armmonitor.DiagnosticSettings, category string) bool {
	for _, l := range s.Logs {
		if value(l).Enabled != nil && *l.Enabled && (strings.EqualFold(value(l.Category), category) || strings.EqualFold(value(l.CategoryGroup), "allLogs")) {
			return true
		}
	}
	return false
}

// nodeGroupObject is the group that AKS has made for the job's cluster and takes
// away with it. It is the job's while it is managed by that cluster alone.
func (p *Provider) nodeGroupObject(r *pipeline.Run) object[armresources.ResourceGroup] {
	name := cmp.Or(r.Job.Config.InfraConfig.Cluster.NodeGroup, nodeGroup(r.Job))
	return object[armresources.ResourceGroup]{
		p: p, r: r, kind: kindGroup, key: "nodes", id: p.groupID(name),
		owner: func(_ context.Context, x resource[armresources.ResourceGroup]) (string, error) {
			if same(value(x.is.ManagedBy), p.clusterID(r)) {
				return r.Job.ID, nil
			}
			return pipeline.Unmarked, nil
		},
	}
}
