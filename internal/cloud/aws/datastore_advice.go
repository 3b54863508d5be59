package aws

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// The advice of a recommendation.
const (
	adviceKeep    = "keep"
	adviceLarger  = "larger"
	adviceSmaller = "smaller"
)

// From which use on a size is too small, and below which it is too large: a class has
// half of what the next one has, so that what is used less than 40 percent of fits there
// with room.
const (
	tightCPU, idleCPU       = 80.0, 30.0
	tightMemory, idleMemory = 85.0, 40.0
	tightDisk               = 85.0
)

// inWords is what the numbers of a metric say.
func inWords(s job.MetricSummary) string {
	return fmt.Sprintf("%s: average %.4g, 95%% of the time at most %.4g, highest %.4g %s", s.Name, s.Average, s.P95, s.Max, s.Unit)
}

// percentOf is a summary of use in percent of a whole; what is in percent stays.
func percentOf(s job.MetricSummary, whole float64) float64 {
	if s.Unit == "percent" {
		return s.P95
	}
	if whole <= 0 {
		return 0
	}
	return 100 * s.P95 / whole
}

// sizeAdvice judges the class by CPU and memory.
func (p *Provider) sizeAdvice(ctx context.Context, info job.DatastoreInfo, seen map[string]job.MetricSummary) (job.Recommendation, error) {
	out := job.Recommendation{What: "class", Advice: adviceKeep, From: info.Class, To: info.Class}
	cpu, memory := seen["cpu"], seen["memory"]
	var texts []string
	for _, m := range []string{"cpu", "memory", "connections"} {
		if s, ok := seen[m]; ok {
			out.Metrics = append(out.Metrics, s)
			texts = append(texts, inWords(s))
		}
	}
	if cpu.Samples < leastSamples {
		out.Reason = fmt.Sprintf("too little is known to judge: the data covers %d days, and 3 are needed", cpu.Days)
		return out, nil
	}
	mem, known := percentOf(memory, info.MemoryGiB), memory.Samples >= leastSamples
	switch {
	case cpu.P95 > tightCPU, known && mem > tightMemory && !databaseCache(info):
		out.Advice = adviceLarger
	case cpu.P95 < idleCPU && cpu.Max < tightCPU && known && mem < idleMemory:
		out.Advice = adviceSmaller
	}
	out.Reason = fmt.Sprintf("over %d days, %s", cpu.Days, strings.Join(texts, "; "))
	if out.Advice == adviceKeep {
		return out, nil
	}
	to, err := p.nextClass(ctx, info, out.Advice == adviceLarger)
	if err = pipeline.Unless(plain(err), pipeline.Denied, pipeline.Invalid, pipeline.NotFound); err != nil {
		return out, err
	}
	if to == "" {
		out.Reason += fmt.Sprintf("; a %s class would do, and the region offers none", out.Advice)
		out.Advice = adviceKeep
		return out, nil
	}
	out.To = to
	out.Command = fmt.Sprintf("aws rds modify-db-instance --db-instance-identifier %s --db-instance-class %s --no-apply-immediately", info.Name, to)
	if info.Engine.Cache() {
		out.Command = fmt.Sprintf("aws elasticache modify-replication-group --replication-group-id %s --cache-node-type %s --no-apply-immediately", info.Name, to)
	}
	return out, nil
}

// databaseCache reports whether memory that is in use says nothing: a database takes
// what there is for its cache. PostgreSQL leaves most of it to the system, which gives
// it back, and MySQL's buffer pool is three quarters of it.
func databaseCache(info job.DatastoreInfo) bool { return info.Engine == job.MySQL }

// nextClass is the next class up or down that the region offers: of the same family if
// there is one, otherwise the nearest in size.
func (p *Provider) nextClass(ctx context.Context, info job.DatastoreInfo, larger bool) (string, error) {
	if info.Engine.Cache() {
		return p.nextNode(ctx, info, larger)
	}
	options, err := p.orderable(ctx, info.Engine, info.Version, "")
	if err != nil {
		return "", err
	}
	sizes := p.classSizes(ctx, options)
	family, _, _ := strings.Cut(strings.TrimPrefix(info.Class, "db."), ".")
	all := slices.DeleteFunc(offers(options, info.HighAvailability, false, sizes), func(o classOffer) bool {
		more := o.vcpus > info.VCPUs || o.vcpus == info.VCPUs && float64(o.memoryGiB) > info.MemoryGiB
		less := o.vcpus < info.VCPUs || o.vcpus == info.VCPUs && float64(o.memoryGiB) < info.MemoryGiB
		return o.vcpus == 0 || o.rank < 0 || larger && !more || !larger && !less
	})
	if !larger {
		slices.Reverse(all)
	}
	for _, o := range all {
		if o.family == family {
			return o.name, nil
		}
	}
	if len(all) > 0 {
		return all[0].name, nil
	}
	return "", nil
}

func (p *Provider) nextNode(ctx context.Context, info job.DatastoreInfo, larger bool) (string, error) {
	sold, err := p.offeredNodes(ctx, info.Engine)
	if err != nil {
		return "", err
	}
	best, memory := "", 0.0
	family := func(t string) string { f, _, _ := strings.Cut(strings.TrimPrefix(t, "cache."), "."); return f }
	for _, t := range nodeTypes {
		if !slices.Contains(sold, t.name) || !chosenFamily(t.name) || larger && t.memory <= info.MemoryGiB || !larger && t.memory >= info.MemoryGiB {
			continue
		}
		nearer := best == "" || larger && t.memory < memory || !larger && t.memory > memory
		if nearer || t.memory == memory && family(t.name) == family(info.Class) {
			best, memory = t.name, t.memory
		}
	}
	return best, nil
}

// storageAdvice judges the disk, which can only grow.
func storageAdvice(info job.DatastoreInfo, seen map[string]job.MetricSummary) job.Recommendation {
	from := fmt.Sprintf("%d GiB", info.StorageGiB)
	out := job.Recommendation{What: "storage", Advice: adviceKeep, From: from, To: from}
	s, ok := seen["storage"]
	if ok {
		out.Metrics = []job.MetricSummary{s}
	}
	if s.Samples < leastSamples {
		out.Reason = fmt.Sprintf("too little is known to judge: the data covers %d days, and 3 are needed", s.Days)
		return out
	}
	used := 100 * s.Max / float64(info.StorageGiB)
	out.Reason = fmt.Sprintf("over %d days, %s: %.0f%% of the disk", s.Days, inWords(s), used)
	if used < tightDisk {
		return out
	}
	// Half as much again, and at least a tenth more, which is the least that RDS takes.
	to := info.StorageGiB + max(info.StorageGiB/2, info.StorageGiB/10+1)
	out.Advice, out.To = adviceLarger, fmt.Sprintf("%d GiB", to)
	out.Command = fmt.Sprintf("aws rds modify-db-instance --db-instance-identifier %s --allocated-storage %d --apply-immediately", info.Name, to)
	return out
}
