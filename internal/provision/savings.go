package provision

import (
	"cmp"
	"fmt"
	"math"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/schedule"
)

// An Estimate is what a schedule saves, with the arithmetic behind it.
type Estimate struct {
	HoursOffPerWeek *float64 `json:"hoursOffPerWeek,omitempty" doc:"Absent: the schedule does not pause and resume by itself"`
	HoursPerWeek    float64  `json:"hoursPerWeek"`
	SavedPercent    *float64 `json:"savedPercent,omitempty" doc:"Of the machine hours"`
	Machines        int      `json:"machines" doc:"How many machines are stopped, as the job asks for them"`
	Arithmetic      string   `json:"arithmetic"`
	SavedPerMonth   *float64 `json:"savedPerMonth,omitempty" doc:"At list price; absent: not priced"`
	Currency        string   `json:"currency,omitempty"`
	Price           string   `json:"price" doc:"Where the price is from and of when, or why nothing is priced"`
	Note            string   `json:"note"`
}

// machineGroup is machines of one type.
type machineGroup struct {
	name, instanceType string
	machines           int
	spot               bool
}

// estimateOf is what a schedule saves: hours off of the hours of a week, and money
// where the dated price table has every type that is stopped.
func estimateOf(row *job.Schedule, subject *job.Job) (Estimate, error) {
	e := Estimate{HoursPerWeek: schedule.HoursAWeek, Note: "Machines alone: disks, load balancers, NAT gateways and a cluster's control plane are billed on while they stand idle."}
	plan, err := schedule.Parse(row.ScheduleSpec)
	if err != nil {
		return e, err
	}
	groups, err := machinesOf(row.Pool, subject)
	if err != nil {
		return e, err
	}
	for _, g := range groups {
		e.Machines += g.machines
	}
	off, ok := plan.HoursOff()
	if !ok {
		e.Arithmetic, e.Price = "it does not both pause and resume, so how long the pool is off is not known", "not priced"
		return e, nil
	}
	off = round2(off)
	percent := round2(off / schedule.HoursAWeek * 100)
	e.HoursOffPerWeek, e.SavedPercent = &off, &percent
	e.Arithmetic = fmt.Sprintf("%g of %d hours on, so %g of %d hours off: %.0f %% of the machine hours saved; %d machines × %g hours = %g machine hours a week",
		round2(schedule.HoursAWeek-off), schedule.HoursAWeek, off, schedule.HoursAWeek, percent, e.Machines, off, round2(float64(e.Machines)*off))
	e.money(groups, subject, off)
	return e, nil
}

// money puts a price on the hours; a type that the table does not have leaves all
// of it unpriced.
func (e *Estimate) money(groups []machineGroup, subject *job.Job, off float64) {
	table := awsPrices()
	if subject.Provider != job.AWS {
		e.Price = fmt.Sprintf("not priced: the price table has no prices of %s", cloudName(subject.Provider))
		return
	}
	region := table.Regions[subject.Region]
	total := 0.0
	for _, g := range groups {
		hour, ok := region.InstanceHour[g.instanceType]
		switch {
		case g.machines == 0:
			continue
		case g.spot:
			e.Price = "not priced: spot prices move"
			return
		case !ok:
			e.Price = fmt.Sprintf("not priced: the price table has no %s in %s", cmp.Or(g.instanceType, "type"), subject.Region)
			return
		}
		month := float64(g.machines) * hour * off * hoursAMonth / schedule.HoursAWeek
		total += month
		e.Arithmetic += fmt.Sprintf("; %d × %s at %g %s an hour × %g hours a week × %d/%d = %.2f %s a month",
			g.machines, g.instanceType, hour, table.Currency, off, hoursAMonth, schedule.HoursAWeek, month, table.Currency)
	}
	total = round2(total)
	e.SavedPerMonth, e.Currency, e.Price = &total, table.Currency, fmt.Sprintf("%s, as of %s", table.Source, table.AsOf)
}

func round2(f float64) float64 { return math.Round(f*100) / 100 }

// machinesOf is the machines that a schedule stops, as the subject's spec asks for
// them, or, of what was adopted, as they were seen.
func machinesOf(pool string, subject *job.Job) ([]machineGroup, error) {
	infra := subject.Config.InfraConfig
	if subject.ResourceType == job.VM {
		spec, err := subject.VMSpec()
		if err != nil {
			return nil, err
		}
		n := spec.Pool.VMCount()
		if !subject.Owns() {
			n = len(infra.VMs)
		}
		return []machineGroup{{job.VMPoolName, cmp.Or(infra.InstanceType, spec.Pool.InstanceType), n, false}}, nil
	}
	var out []machineGroup
	for _, n := range infra.Cluster.NodePools {
		if pool != "" && n.Name != pool || subject.Provider == job.Azure && n.Name == job.SystemPool {
			continue
		}
		out = append(out, machineGroup{n.Name, n.InstanceType, n.Desired, n.Spot})
	}
	return out, nil
}
