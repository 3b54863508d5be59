package aws

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// zone is an availability zone.
type zone struct{ Name, ID string }

// zonesOf lists the zones of a region in order of their names.
func zonesOf(region string) []zone {
	r := regions[region]
	var out []zone
	for i, letter := range r.zones {
		n := i + 1
		if region == "us-east-1" { // which zone a letter means differs by account; this is a common case
			n = []int{6, 1, 2, 4, 3, 5}[i]
		}
		out = append(out, zone{region + string(letter), fmt.Sprintf("%s-az%d", r.zonePrefix, n)})
	}
	return out
}

// zoneFor finds the zone that a request names, or picks one.
func (e *EC2) zoneFor(region, name, id, salt string) (zone, error) {
	all := zonesOf(region)
	if name == "" && id == "" {
		return all[int(e.cloud.World.Fraction("zone", salt)*float64(len(all)))], nil
	}
	var names []string
	for _, z := range all {
		if z.Name == name || (name == "" && z.ID == id) {
			return z, nil
		}
		names = append(names, z.Name)
	}
	if name == "" {
		return zone{}, refuse("InvalidParameterValue", "Value (%s) for parameter availabilityZoneId is invalid.", id)
	}
	return zone{}, refuse("InvalidParameterValue", "Value (%s) for parameter availabilityZone is invalid. Subnets can currently only be created in the following availability zones: %s.", name, strings.Join(names, ", "))
}

type zoneInfo struct {
	ZoneName      string     `ec2:"zoneName"`
	ZoneID        string     `ec2:"zoneId"`
	State         string     `ec2:"zoneState"`
	RegionName    string     `ec2:"regionName"`
	GroupName     string     `ec2:"groupName"`
	GroupLongName string     `ec2:"groupLongName"`
	OptIn         string     `ec2:"optInStatus"`
	BorderGroup   string     `ec2:"networkBorderGroup"`
	Type          string     `ec2:"zoneType"`
	Messages      []struct{} `ec2:"messageSet"`
}

type describeZonesIn struct {
	ZoneName []string
	ZoneID   []string `q:"ZoneId"`
	Filter   []Filter
}

func (e *EC2) describeZones(r *request, in describeZonesIn) (any, error) {
	var out []zoneInfo
	for _, z := range zonesOf(r.Region) {
		out = append(out, zoneInfo{ZoneName: z.Name, ZoneID: z.ID, State: "available", RegionName: r.Region, GroupName: r.Region + "-zg-1",
			GroupLongName: regions[r.Region].longName + " 1", OptIn: "opt-in-not-required", BorderGroup: r.Region, Type: "availability-zone"})
	}
	for _, name := range in.ZoneName {
		if !slices.ContainsFunc(out, func(z zoneInfo) bool { return z.ZoneName == name }) {
			return nil, refuse("InvalidParameterValue", "Invalid availability zone: [%s]", name)
		}
	}
	var err error
	out = slices.DeleteFunc(out, func(z zoneInfo) bool {
		if len(in.ZoneName)+len(in.ZoneID) > 0 && !slices.Contains(in.ZoneName, z.ZoneName) && !slices.Contains(in.ZoneID, z.ZoneID) {
			return true
		}
		v := map[string]string{"zone-name": z.ZoneName, "zone-id": z.ZoneID, "state": z.State, "region-name": z.RegionName, "group-name": z.GroupName,
			"opt-in-status": z.OptIn, "zone-type": z.Type, "group-long-name": z.GroupLongName}
		keep, ferr := filterMap(v, in.Filter)
		if ferr != nil {
			err = ferr
		}
		return !keep
	})
	return struct {
		Zones []zoneInfo `ec2:"availabilityZoneInfo"`
	}{out}, err
}

// filterMap applies filters to something that is not an object.
func filterMap(v map[string]string, filters []Filter) (bool, error) {
	for _, f := range filters {
		s, ok := v[f.Name]
		if !ok {
			return false, refuse("InvalidParameterValue", "The filter '%s' is invalid", f.Name)
		}
		if !anyMatch(f.Value, strings.Split(s, ",")) {
			return false, nil
		}
	}
	return true, nil
}

type regionInfo struct {
	Name     string `ec2:"regionName"`
	Endpoint string `ec2:"regionEndpoint"`
	OptIn    string `ec2:"optInStatus"`
}

type describeRegionsIn struct {
	RegionName []string
	Filter     []Filter
}

func (e *EC2) describeRegions(r *request, in describeRegionsIn) (any, error) {
	var out []regionInfo
	for _, n := range in.RegionName {
		if _, ok := regions[n]; !ok {
			return nil, refuse("InvalidParameterValue", "Invalid region provided: [%s]", n)
		}
	}
	for _, n := range regionNames() {
		i := regionInfo{n, "ec2." + n + ".amazonaws.com", "opt-in-not-required"}
		keep, err := filterMap(map[string]string{"region-name": i.Name, "endpoint": i.Endpoint, "opt-in-status": i.OptIn}, in.Filter)
		if err != nil {
			return nil, err
		}
		if keep && (len(in.RegionName) == 0 || slices.Contains(in.RegionName, n)) {
			out = append(out, i)
		}
	}
	return struct {
		Regions []regionInfo `ec2:"regionInfo"`
	}{out}, nil
}

// instanceType is a size of machine.
type instanceType struct {
	name, family, arch string
	vcpus, memory      int // memory in MiB
	burstable, current bool
}

// families are the kinds of machines that exist here, with the memory in MiB of a vCPU of the larger sizes.
var families = []struct {
	name, arch string
	perCPU     int
	current    bool
}{
	{"t2", "x86_64", 4096, true}, {"t3", "x86_64", 4096, true}, {"t3a", "x86_64", 4096, true}, {"t4g", "arm64", 4096, true},
	{"m5", "x86_64", 4096, true}, {"m6i", "x86_64", 4096, true}, {"m6g", "arm64", 4096, true}, {"m7i", "x86_64", 4096, true}, {"m7g", "arm64", 4096, true},
	{"c5", "x86_64", 2048, true}, {"c6i", "x86_64", 2048, true}, {"c6g", "arm64", 2048, true}, {"c7i", "x86_64", 2048, true}, {"c7g", "arm64", 2048, true},
	{"r5", "x86_64", 8192, true}, {"r6i", "x86_64", 8192, true}, {"r6g", "arm64", 8192, true}, {"r7i", "x86_64", 8192, true}, {"r7g", "arm64", 8192, true},
	{"m4", "x86_64", 4096, false},
}

var sizes = []struct {
	name      string
	vcpus     int
	burstable int // memory in MiB of the burstable families, which have their own sizes
}{
	{"nano", 2, 512}, {"micro", 2, 1024}, {"small", 2, 2048}, {"medium", 2, 4096}, {"large", 2, 8192}, {"xlarge", 4, 16384}, {"2xlarge", 8, 32768},
	{"4xlarge", 16, 0}, {"8xlarge", 32, 0}, {"12xlarge", 48, 0}, {"16xlarge", 64, 0},
}

var instanceTypes = func() map[string]instanceType {
	out := map[string]instanceType{}
	for _, f := range families {
		burst := f.name[0] == 't'
		for _, s := range sizes {
			t := instanceType{name: f.name + "." + s.name, family: f.name, arch: f.arch, vcpus: s.vcpus, memory: s.vcpus * f.perCPU, burstable: burst, current: f.current}
			small := s.burstable > 0 && s.burstable < 8192
			switch {
			case burst && s.burstable == 0:
				continue
			case burst:
				t.memory = s.burstable
				if f.name == "t2" && small && s.name != "medium" {
					t.vcpus = 1
				}
			case s.name == "medium" && f.arch == "arm64": // Graviton families have a one-vCPU size
				t.vcpus, t.memory = 1, f.perCPU
			case small:
				continue
			}
			out[t.name] = t
		}
	}
	return out
}()

// offered says whether a type is offered in a zone. One old zone of us-east-1 has only older families, as in reality.
func offered(t instanceType, zoneName string) bool {
	if zoneName != "us-east-1e" {
		return true
	}
	return slices.Contains([]string{"t2", "t3", "m4", "m5", "c5", "r5"}, t.family)
}

type typeInfo struct {
	Name            string   `ec2:"instanceType"`
	Current         bool     `ec2:"currentGeneration"`
	FreeTier        bool     `ec2:"freeTierEligible"`
	UsageClasses    []string `ec2:"supportedUsageClasses"`
	RootTypes       []string `ec2:"supportedRootDeviceTypes"`
	Virtualizations []string `ec2:"supportedVirtualizationTypes"`
	BareMetal       bool     `ec2:"bareMetal"`
	Hypervisor      string   `ec2:"hypervisor"`
	Processor       struct {
		Architectures []string `ec2:"supportedArchitectures"`
		Clock         float64  `ec2:"sustainedClockSpeedInGhz"`
		Manufacturer  string   `ec2:"manufacturer"`
	} `ec2:"processorInfo"`
	VCPU struct {
		Default int `ec2:"defaultVCpus"`
		Cores   int `ec2:"defaultCores"`
		Threads int `ec2:"defaultThreadsPerCore"`
	} `ec2:"vCpuInfo"`
	Memory struct {
		Size int `ec2:"sizeInMiB"`
	} `ec2:"memoryInfo"`
	Storage bool `ec2:"instanceStorageSupported"`
	Ebs     struct {
		Optimized  string `ec2:"ebsOptimizedSupport"`
		Encryption string `ec2:"encryptionSupport"`
		Nvme       string `ec2:"nvmeSupport"`
	} `ec2:"ebsInfo"`
	Network struct {
		Performance string `ec2:"networkPerformance"`
		Interfaces  int    `ec2:"maximumNetworkInterfaces"`
		Cards       int    `ec2:"maximumNetworkCards"`
		Default     int    `ec2:"defaultNetworkCardIndex"`
		IPv4        int    `ec2:"ipv4AddressesPerInterface"`
		IPv6        int    `ec2:"ipv6AddressesPerInterface"`
		IPv6OK      bool   `ec2:"ipv6Supported"`
		Ena         string `ec2:"enaSupport"`
		Efa         bool   `ec2:"efaSupported"`
		Encryption  bool   `ec2:"encryptionInTransitSupported"`
	} `ec2:"networkInfo"`
	Placement struct {
		Strategies []string `ec2:"supportedStrategies"`
	} `ec2:"placementGroupInfo"`
	Hibernation  bool     `ec2:"hibernationSupported"`
	Burstable    bool     `ec2:"burstablePerformanceSupported"`
	Dedicated    bool     `ec2:"dedicatedHostsSupported"`
	AutoRecovery bool     `ec2:"autoRecoverySupported"`
	BootModes    []string `ec2:"supportedBootModes"`
	Enclaves     string   `ec2:"nitroEnclavesSupport"`
	Tpm          string   `ec2:"nitroTpmSupport"`
}

// interfaceLimits are how many network interfaces an instance of a size may have, and how many addresses each of those, as
// most families have it ("Maximum IP addresses per network interface", Amazon EC2 user guide).
var interfaceLimits = map[string][2]int{
	"nano": {2, 2}, "micro": {2, 2}, "small": {3, 4}, "medium": {3, 6}, "large": {3, 10}, "xlarge": {4, 15}, "2xlarge": {4, 15}, "4xlarge": {8, 30}, "8xlarge": {8, 30},
	"12xlarge": {8, 30}, "16xlarge": {15, 50},
}

func (t instanceType) info() typeInfo {
	i := typeInfo{Name: t.name, Current: t.current, FreeTier: t.name == "t3.micro" || t.name == "t2.micro", UsageClasses: []string{"on-demand", "spot"},
		RootTypes: []string{"ebs"}, Virtualizations: []string{"hvm"}, Hypervisor: "nitro", Burstable: t.burstable, Dedicated: !t.burstable,
		AutoRecovery: true, BootModes: []string{"legacy-bios", "uefi"}, Enclaves: "unsupported", Tpm: "supported", Hibernation: t.arch == "x86_64"}
	if t.family == "t2" || t.family == "m4" {
		i.Hypervisor, i.Tpm, i.BootModes = "xen", "unsupported", []string{"legacy-bios"}
	}
	i.Processor.Architectures, i.Processor.Clock, i.Processor.Manufacturer = []string{t.arch}, 3.1, "Intel"
	i.VCPU.Default, i.VCPU.Cores, i.VCPU.Threads = t.vcpus, max(t.vcpus/2, 1), 2
	if t.arch == "arm64" {
		i.Processor.Clock, i.Processor.Manufacturer, i.BootModes = 2.6, "AWS", []string{"uefi"}
		i.VCPU.Cores, i.VCPU.Threads = t.vcpus, 1
	}
	if t.vcpus == 1 {
		i.VCPU.Threads = 1
	}
	i.Memory.Size = t.memory
	i.Ebs.Optimized, i.Ebs.Encryption, i.Ebs.Nvme = "default", "supported", "required"
	i.Network.Performance, i.Network.Cards, i.Network.IPv6OK, i.Network.Ena = "Up to 5 Gigabit", 1, true, "required"
	net := interfaceLimits[t.name[strings.Index(t.name, ".")+1:]]
	i.Network.Interfaces, i.Network.IPv4, i.Network.IPv6 = net[0], net[1], net[1]
	i.Placement.Strategies = []string{"partition", "spread"}
	if !t.burstable {
		i.Placement.Strategies = []string{"cluster", "partition", "spread"}
	}
	return i
}

type describeTypesIn struct {
	InstanceType []string
	page
}

func typeNames() []string {
	names := make([]string, 0, len(instanceTypes))
	for n := range instanceTypes {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

func (e *EC2) describeTypes(r *request, in describeTypesIn) (any, error) {
	var unknown []string
	for _, n := range in.InstanceType {
		if _, ok := instanceTypes[n]; !ok {
			unknown = append(unknown, n)
		}
	}
	if len(unknown) > 0 {
		return nil, refuse("InvalidInstanceType", "The following supplied instance types do not exist: [%s]", strings.Join(unknown, ", "))
	}
	var out []typeInfo
	for _, n := range typeNames() {
		t := instanceTypes[n]
		v := map[string]string{"instance-type": n, "current-generation": strconv.FormatBool(t.current), "processor-info.supported-architecture": t.arch,
			"vcpu-info.default-vcpus": strconv.Itoa(t.vcpus), "memory-info.size-in-mib": strconv.Itoa(t.memory), "burstable-performance-supported": strconv.FormatBool(t.burstable),
			"bare-metal": "false", "hypervisor": t.info().Hypervisor, "supported-root-device-type": "ebs", "supported-usage-class": "on-demand,spot",
			"supported-virtualization-type": "hvm", "instance-storage-supported": "false", "free-tier-eligible": strconv.FormatBool(t.info().FreeTier)}
		keep, err := filterMap(v, in.Filter)
		if err != nil {
			return nil, err
		}
		if keep && (len(in.InstanceType) == 0 || slices.Contains(in.InstanceType, n)) {
			out = append(out, t.info())
		}
	}
	if in.MaxResults == nil && len(in.InstanceType) == 0 {
		most := 100 // the API's own page size
		in.MaxResults = &most
	}
	items, next, err := paginate(e.cloud, r, out, in.page, 5, 100)
	return struct {
		Types []typeInfo `ec2:"instanceTypeSet"`
		Next  string     `ec2:"nextToken,omitempty"`
	}{items, next}, err
}

type offering struct {
	Type         string `ec2:"instanceType"`
	LocationType string `ec2:"locationType"`
	Location     string `ec2:"location"`
}

type describeOfferingsIn struct {
	LocationType string
	page
}

func (e *EC2) describeOfferings(r *request, in describeOfferingsIn) (any, error) {
	if in.LocationType == "" {
		in.LocationType = "region"
	}
	var out []offering
	add := func(t instanceType, location string) error {
		keep, err := filterMap(map[string]string{"instance-type": t.name, "location": location}, in.Filter)
		if keep {
			out = append(out, offering{t.name, in.LocationType, location})
		}
		return err
	}
	for _, n := range typeNames() {
		t := instanceTypes[n]
		var err error
		switch in.LocationType {
		case "region":
			err = add(t, r.Region)
		case "availability-zone", "availability-zone-id":
			for _, z := range zonesOf(r.Region) {
				loc := z.Name
				if in.LocationType == "availability-zone-id" {
					loc = z.ID
				}
				if offered(t, z.Name) && err == nil {
					err = add(t, loc)
				}
			}
		default:
			err = refuse("InvalidParameterValue", "Value (%s) for parameter locationType is invalid.", in.LocationType)
		}
		if err != nil {
			return nil, err
		}
	}
	items, next, err := paginate(e.cloud, r, out, in.page, 5, 1000)
	return struct {
		Offerings []offering `ec2:"instanceTypeOfferingSet"`
		Next      string     `ec2:"nextToken,omitempty"`
	}{items, next}, err
}

// privateName is the internal host name of an address.
func privateName(ip, region string) string {
	if region == "us-east-1" {
		return "ip-" + strings.ReplaceAll(ip, ".", "-") + ".ec2.internal"
	}
	return "ip-" + strings.ReplaceAll(ip, ".", "-") + "." + region + ".compute.internal"
}

// publicIP makes a public address, out of a range that is nobody's ("198.18.0.0/15", RFC 2544).
func (e *EC2) publicIP() string {
	e.st.Seq++
	n := e.st.Seq
	return fmt.Sprintf("198.%d.%d.%d", 18+n/64000%2, n/250%256, n%250+1)
}
