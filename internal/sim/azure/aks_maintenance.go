package azure

import (
	"net/http"
	"slices"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/containerservice/armcontainerservice/v9"
)

// The names of the maintenance configurations that there can be ("Use planned maintenance to schedule and control upgrades").
const (
	weeklyReleases = "default"
	autoUpgrades   = "aksManagedAutoUpgradeSchedule"
	nodeOSUpgrades = "aksManagedNodeOSUpgradeSchedule"
)

// addMaintenance registers the windows in which a cluster may be upgraded.
func (c *Cloud) addMaintenance() {
	c.addKind(&kind{typ: maintenanceType, service: clusterService, title: "MaintenanceConfigurations", versions: clusterVersions[3:], stateless: true, noEtag: true, says: clusterDialect,
		model: func() any { return &armcontainerservice.MaintenanceConfiguration{} }, modelled: func(v string) bool { return v == sdkClusterVersion },
		put: putMaintenance, show: func(_ *request, res *Resource, body doc) { body["id"] = lowerGroup(res.ID) }})
}

func putMaintenance(_ *request, now, _ *Resource) (outcome, error) {
	if !slices.Contains([]string{weeklyReleases, autoUpgrades, nodeOSUpgrades}, now.Name) {
		return outcome{}, badParameter("name", "The maintenance configuration name %s is invalid. It must be one of %s, %s and %s.", now.Name, weeklyReleases, autoUpgrades, nodeOSUpgrades)
	}
	p := now.Properties
	if now.Name == weeklyReleases && !p.has("maintenanceWindow") {
		if len(p.docs("timeInWeek")) == 0 && len(p.docs("notAllowedTime")) == 0 {
			return outcome{}, badParameter("timeInWeek", "Either timeInWeek or notAllowedTime must be set in the maintenance configuration %s.", now.Name)
		}
		return outcome{status: http.StatusOK}, nil
	}
	w := p.sub("maintenanceWindow")
	if w == nil {
		return outcome{}, badParameter("maintenanceWindow", "Required parameter maintenanceWindow is missing (null).")
	}
	if n := w.num("durationHours"); n < 4 || n > 24 {
		return outcome{}, badParameter("maintenanceWindow.durationHours", "The value of parameter maintenanceWindow.durationHours is invalid. It must be between 4 and 24.")
	}
	schedules := 0
	for _, kind := range []string{"daily", "weekly", "absoluteMonthly", "relativeMonthly"} {
		if w.has("schedule." + kind) {
			schedules++
		}
	}
	if schedules != 1 {
		return outcome{}, badParameter("maintenanceWindow.schedule", "One and only one of the schedules daily, weekly, absoluteMonthly and relativeMonthly must be set.")
	}
	if w.has("schedule.daily") && now.Name == autoUpgrades {
		return outcome{}, badParameter("maintenanceWindow.schedule.daily", "A daily schedule is supported for %s only.", nodeOSUpgrades)
	}
	if w.str("startTime") == "" {
		return outcome{}, badParameter("maintenanceWindow.startTime", "Required parameter maintenanceWindow.startTime is missing (null).")
	}
	w.def("utcOffset", "+00:00")
	return outcome{status: http.StatusOK}, nil
}
