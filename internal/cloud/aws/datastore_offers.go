package aws

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/rds"
	rdstypes "github.com/aws/aws-sdk-go-v2/service/rds/types"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
)

// An engineVersion is a version that a region offers.
type engineVersion struct {
	version  string
	standard bool   // in standard support
	until    string // day on which standard support ends; "" if it is not said
}

// compareVersions orders versions by their numbers.
func compareVersions(a, b string) int {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	for i := range max(len(x), len(y)) {
		if c := cmp.Compare(numberAt(x, i), numberAt(y, i)); c != 0 {
			return c
		}
	}
	return 0
}

func numberAt(parts []string, i int) int {
	if i >= len(parts) {
		return -1
	}
	n, err := strconv.Atoi(strings.TrimLeft(parts[i], "v"))
	if err != nil {
		return -1
	}
	return n
}

// withinVersion reports whether a version is the one asked for, or a minor one of it.
func withinVersion(asked, version string) bool {
	return version == asked || strings.HasPrefix(version, asked+".")
}

// databaseVersions are the versions that RDS offers now, the oldest first. Which are in
// standard support is another call; an endpoint that lacks it leaves all as such.
func (p *Provider) databaseVersions(ctx context.Context, e job.Engine, now string) ([]engineVersion, error) {
	return lookup.Once(ctx, "versions of "+string(e), func(ctx context.Context) ([]engineVersion, error) {
		all, err := lookup.Pages(ctx, func(ctx context.Context, token *string) ([]rdstypes.DBEngineVersion, *string, error) {
			out, err := p.rds.DescribeDBEngineVersions(ctx, &rds.DescribeDBEngineVersionsInput{Engine: aws.String(string(e)), Marker: token})
			if err != nil {
				return nil, nil, err
			}
			return out.DBEngineVersions, out.Marker, nil
		})
		if err != nil {
			return nil, err
		}
		ends, err := p.standardSupport(ctx, e)
		if err != nil && !lacksCall(plain(err)) {
			return nil, err
		}
		var out []engineVersion
		for _, v := range all {
			if s := aws.ToString(v.Status); s != "" && s != "available" {
				continue
			}
			x := engineVersion{version: aws.ToString(v.EngineVersion)}
			x.until = ends[or(aws.ToString(v.MajorEngineVersion), majorOf(e, x.version))]
			x.standard = x.until == "" || x.until >= now
			out = append(out, x)
		}
		slices.SortFunc(out, func(a, b engineVersion) int { return compareVersions(a.version, b.version) })
		return out, nil
	})
}

// standardSupport is the day on which standard support of each major version ends.
func (p *Provider) standardSupport(ctx context.Context, e job.Engine) (map[string]string, error) {
	all, err := lookup.Pages(ctx, func(ctx context.Context, token *string) ([]rdstypes.DBMajorEngineVersion, *string, error) {
		out, err := p.rds.DescribeDBMajorEngineVersions(ctx, &rds.DescribeDBMajorEngineVersionsInput{Engine: aws.String(string(e)), Marker: token})
		if err != nil {
			return nil, nil, err
		}
		return out.DBMajorEngineVersions, out.Marker, nil
	})
	ends := map[string]string{}
	for _, m := range all {
		for _, l := range m.SupportedEngineLifecycles {
			if l.LifecycleSupportName == rdstypes.LifecycleSupportNameOpenSourceRdsStandardSupport && l.LifecycleSupportEndDate != nil {
				ends[aws.ToString(m.MajorEngineVersion)] = l.LifecycleSupportEndDate.UTC().Format("2006-01-02")
			}
		}
	}
	return ends, err
}

// orderable is how an engine's version can be had: in one class, or, with "", in all.
func (p *Provider) orderable(ctx context.Context, e job.Engine, version, class string) ([]rdstypes.OrderableDBInstanceOption, error) {
	return lookup.Once(ctx, strings.Join([]string{"orderable", string(e), version, class}, " "), func(ctx context.Context) ([]rdstypes.OrderableDBInstanceOption, error) {
		return lookup.Pages(ctx, func(ctx context.Context, token *string) ([]rdstypes.OrderableDBInstanceOption, *string, error) {
			in := &rds.DescribeOrderableDBInstanceOptionsInput{Engine: aws.String(string(e)), EngineVersion: aws.String(version), Vpc: aws.Bool(true), Marker: token}
			if class != "" {
				in.DBInstanceClass = aws.String(class)
			}
			out, err := p.rds.DescribeOrderableDBInstanceOptions(ctx, in)
			if err != nil {
				return nil, nil, err
			}
			return out.OrderableDBInstanceOptions, out.Marker, nil
		})
	})
}

// dbFamilies are the families that a size resolves to, in order of preference where
// two are equally large: burstable, then the newest that regions widely have. Which of
// them a region offers for a version is asked of RDS, and how large they are of EC2.
var dbFamilies = []string{"t4g", "m8g", "m7g", "m6g", "r8g", "r7g", "r6g", "t3", "m7i", "m6i", "m5", "r7i", "r6i", "r5"}

// A classOffer is a class of instance, how large it is and where it can be had.
type classOffer struct {
	name string
	typeSize
	rank   int
	zones  []string
	min    int // GiB of disk
	max    int
	family string
}

// offers are the classes that can be had as a datastore of the spec wants: encrypted,
// on gp3, and with a standby if asked for; the smallest first.
func offers(options []rdstypes.OrderableDBInstanceOption, ha, burstableLast bool, sizes map[string]typeSize) []classOffer {
	var out []classOffer
	for _, o := range options {
		if aws.ToString(o.StorageType) != "gp3" || o.SupportsStorageEncryption != nil && !*o.SupportsStorageEncryption || ha && !aws.ToBool(o.MultiAZCapable) {
			continue
		}
		class := aws.ToString(o.DBInstanceClass)
		family, _, _ := strings.Cut(strings.TrimPrefix(class, "db."), ".")
		c := classOffer{name: class, family: family, rank: slices.Index(dbFamilies, family), min: int(aws.ToInt32(o.MinStorageSize)), max: int(aws.ToInt32(o.MaxStorageSize))}
		if burstableLast && strings.HasPrefix(family, "t") {
			c.rank += len(dbFamilies)
		}
		c.typeSize = sizes[class]
		for _, z := range o.AvailabilityZones {
			c.zones = append(c.zones, aws.ToString(z.Name))
		}
		out = append(out, c)
	}
	slices.SortStableFunc(out, func(a, b classOffer) int {
		return cmp.Or(cmp.Compare(a.vcpus, b.vcpus), cmp.Compare(a.memoryGiB, b.memoryGiB), cmp.Compare(a.rank, b.rank), cmp.Compare(a.name, b.name))
	})
	return out
}

// classSize is what the table of EC2's types knows of a class.
func classSize(class string) (typeSize, bool) {
	size, _, ok := typeOf(strings.TrimPrefix(class, "db."))
	return size, ok
}

// classSizes are the sizes of classes, by what EC2 says of the types under them; what
// it does not describe is taken from the table.
func (p *Provider) classSizes(ctx context.Context, options []rdstypes.OrderableDBInstanceOption) map[string]typeSize {
	sizes := map[string]typeSize{}
	var names []string
	for _, o := range options {
		class := aws.ToString(o.DBInstanceClass)
		family, _, _ := strings.Cut(strings.TrimPrefix(class, "db."), ".")
		if _, seen := sizes[class]; seen || !slices.Contains(dbFamilies, family) {
			continue
		}
		sizes[class], _ = classSize(class)
		names = append(names, strings.TrimPrefix(class, "db."))
	}
	for part := range slices.Chunk(names, 100) {
		all, err := lookup.Pages(ctx, func(ctx context.Context, token *string) ([]ec2types.InstanceTypeInfo, *string, error) {
			out, err := p.ec2.DescribeInstanceTypes(ctx, &ec2.DescribeInstanceTypesInput{Filters: []ec2types.Filter{filter("instance-type", part...)}, NextToken: token})
			if err != nil {
				return nil, nil, err
			}
			return out.InstanceTypes, out.NextToken, nil
		})
		if err != nil {
			continue // the table has the common ones
		}
		for _, t := range all {
			if t.VCpuInfo != nil && t.MemoryInfo != nil {
				sizes["db."+string(t.InstanceType)] = typeSize{vcpus: int(aws.ToInt32(t.VCpuInfo.DefaultVCpus)), memoryGiB: int(aws.ToInt64(t.MemoryInfo.SizeInMiB) / 1024)}
			}
		}
	}
	for class, s := range sizes {
		if s.vcpus == 0 {
			delete(sizes, class)
		}
	}
	return sizes
}
