package azure

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A vmSize is a size of virtual machine, as the catalogue of sizes describes it.
type vmSize struct {
	Name   string
	Series *vmSeries
	CPUs   int
	Memory float64 // GiB
}

// A vmSeries is what the sizes of a series have in common.
type vmSeries struct {
	Pattern    string // of the names; %d is the number of vCPUs
	Family     string // name of the quota
	FamilyName string
	Arch       string // x64 or Arm64
	Gens       string // Hyper-V generations
	PerCPU     float64
	CPUs       []int
	// NoAccelerated: no accelerated networking; NoHostCrypt: no encryption at host; Restricted: not offered to this kind of
	// subscription; Quota: default limit of vCPUs, zero meaning 100, negative none.
	NoAccelerated, NoHostCrypt, Restricted bool
	// CachePerCPU and TempPerCPU are the GiB of cache and of local disk a vCPU, for ephemeral OS disks; zero: none.
	CachePerCPU, TempPerCPU float64
	Quota                   int
}

// vmSeriesTable holds a choice of the current series ("Sizes for virtual machines in Azure").
var vmSeriesTable = []*vmSeries{
	{Pattern: "Standard_D%ds_v6", Family: "standardDSv6Family", FamilyName: "Standard DSv6 Family vCPUs", Arch: "x64", Gens: "V2", PerCPU: 4, CPUs: []int{2, 4, 8, 16, 32, 48, 64, 96}},
	{Pattern: "Standard_D%ds_v5", Family: "standardDSv5Family", FamilyName: "Standard DSv5 Family vCPUs", Arch: "x64", Gens: "V1,V2", PerCPU: 4, CPUs: []int{2, 4, 8, 16, 32, 48, 64, 96}},
	{Pattern: "Standard_D%dds_v5", Family: "standardDDSv5Family", FamilyName: "Standard DDSv5 Family vCPUs", Arch: "x64", Gens: "V1,V2", PerCPU: 4, CPUs: []int{2, 4, 8, 16, 32, 48, 64, 96}, TempPerCPU: 37.5},
	{Pattern: "Standard_D%das_v5", Family: "standardDASv5Family", FamilyName: "Standard DASv5 Family vCPUs", Arch: "x64", Gens: "V1,V2", PerCPU: 4, CPUs: []int{2, 4, 8, 16, 32, 48, 64, 96}},
	{Pattern: "Standard_D%dls_v5", Family: "standardDLSv5Family", FamilyName: "Standard DLSv5 Family vCPUs", Arch: "x64", Gens: "V1,V2", PerCPU: 2, CPUs: []int{2, 4, 8, 16, 32, 48, 64, 96}},
	{Pattern: "Standard_D%dps_v6", Family: "StandardDpsv6Family", FamilyName: "Standard Dpsv6 Family vCPUs", Arch: "Arm64", Gens: "V2", PerCPU: 4, CPUs: []int{2, 4, 8, 16, 32, 48, 64, 96}},
	{Pattern: "Standard_D%dps_v5", Family: "standardDPSv5Family", FamilyName: "Standard DPSv5 Family vCPUs", Arch: "Arm64", Gens: "V2", PerCPU: 4, CPUs: []int{2, 4, 8, 16, 32, 48, 64}},
	{Pattern: "Standard_D%dpls_v5", Family: "standardDPLSv5Family", FamilyName: "Standard DPLSv5 Family vCPUs", Arch: "Arm64", Gens: "V2", PerCPU: 2, CPUs: []int{2, 4, 8, 16, 32, 48, 64}},
	{Pattern: "Standard_D%ds_v3", Family: "standardDSv3Family", FamilyName: "Standard DSv3 Family vCPUs", Arch: "x64", Gens: "V1,V2", PerCPU: 4, CPUs: []int{2, 4, 8, 16, 32, 48, 64}, CachePerCPU: 25, TempPerCPU: 8},
	{Pattern: "Standard_E%ds_v5", Family: "standardESv5Family", FamilyName: "Standard ESv5 Family vCPUs", Arch: "x64", Gens: "V1,V2", PerCPU: 8, CPUs: []int{2, 4, 8, 16, 20, 32, 48, 64, 96}},
	{Pattern: "Standard_E%dps_v5", Family: "standardEPSv5Family", FamilyName: "Standard EPSv5 Family vCPUs", Arch: "Arm64", Gens: "V2", PerCPU: 8, CPUs: []int{2, 4, 8, 16, 20, 32}},
	{Pattern: "Standard_F%ds_v2", Family: "standardFSv2Family", FamilyName: "Standard FSv2 Family vCPUs", Arch: "x64", Gens: "V1,V2", PerCPU: 2, CPUs: []int{2, 4, 8, 16, 32, 48, 64, 72}, CachePerCPU: 16, TempPerCPU: 8},
	{Pattern: "Standard_B%dls_v2", Family: "standardBsv2Family", FamilyName: "Standard Bsv2 Family vCPUs", Arch: "x64", Gens: "V1,V2", PerCPU: 2, CPUs: []int{2, 4, 8, 16, 32}},
	{Pattern: "Standard_B%ds_v2", Family: "standardBsv2Family", FamilyName: "Standard Bsv2 Family vCPUs", Arch: "x64", Gens: "V1,V2", PerCPU: 4, CPUs: []int{2, 4, 8, 16, 32}},
	{Pattern: "Standard_B%dts_v2", Family: "standardBsv2Family", FamilyName: "Standard Bsv2 Family vCPUs", Arch: "x64", Gens: "V1,V2", PerCPU: 0.5, CPUs: []int{2}},
	{Pattern: "Standard_B%dals_v2", Family: "standardBasv2Family", FamilyName: "Standard Basv2 Family vCPUs", Arch: "x64", Gens: "V1,V2", PerCPU: 2, CPUs: []int{2, 4, 8, 16, 32}},
	{Pattern: "Standard_B%das_v2", Family: "standardBasv2Family", FamilyName: "Standard Basv2 Family vCPUs", Arch: "x64", Gens: "V1,V2", PerCPU: 4, CPUs: []int{2, 4, 8, 16, 32}},
	{Pattern: "Standard_B%dpts_v2", Family: "standardBpsv2Family", FamilyName: "Standard Bpsv2 Family vCPUs", Arch: "Arm64", Gens: "V2", PerCPU: 0.5, CPUs: []int{2}},
	{Pattern: "Standard_B%dpls_v2", Family: "standardBpsv2Family", FamilyName: "Standard Bpsv2 Family vCPUs", Arch: "Arm64", Gens: "V2", PerCPU: 2, CPUs: []int{2, 4, 8, 16}},
	{Pattern: "Standard_B%dps_v2", Family: "standardBpsv2Family", FamilyName: "Standard Bpsv2 Family vCPUs", Arch: "Arm64", Gens: "V2", PerCPU: 4, CPUs: []int{2, 4, 8, 16}},
	{Pattern: "Standard_B%ds", Family: "standardBSFamily", FamilyName: "Standard BS Family vCPUs", Arch: "x64", Gens: "V1,V2", PerCPU: 2, CPUs: []int{2}, NoAccelerated: true},
	{Pattern: "Standard_B%dms", Family: "standardBSFamily", FamilyName: "Standard BS Family vCPUs", Arch: "x64", Gens: "V1,V2", PerCPU: 4, CPUs: []int{2, 4, 8}, NoAccelerated: true, CachePerCPU: 15, TempPerCPU: 8},
	{Pattern: "Standard_D%d_v2", Family: "standardDv2Family", FamilyName: "Standard Dv2 Family vCPUs", Arch: "x64", Gens: "V1", PerCPU: 3.5, CPUs: []int{1, 2}, NoAccelerated: true, NoHostCrypt: true},
	{Pattern: "Standard_DS%d_v2", Family: "standardDSv2Family", FamilyName: "Standard DSv2 Family vCPUs", Arch: "x64", Gens: "V1,V2", PerCPU: 3.5, CPUs: []int{1, 2}, NoAccelerated: true, CachePerCPU: 43, TempPerCPU: 7},
	{Pattern: "Standard_A%d_v2", Family: "standardAv2Family", FamilyName: "Standard Av2 Family vCPUs", Arch: "x64", Gens: "V1", PerCPU: 2, CPUs: []int{1, 2, 4, 8}, NoAccelerated: true, NoHostCrypt: true},
	{Pattern: "Standard_NC%das_T4_v3", Family: "Standard NCASv3_T4 Family", FamilyName: "Standard NCASv3_T4 Family vCPUs", Arch: "x64", Gens: "V1,V2", PerCPU: 7, CPUs: []int{4, 8, 16, 64}, Quota: -1, TempPerCPU: 44},
	{Pattern: "Standard_M%ds", Family: "standardMSFamily", FamilyName: "Standard MS Family vCPUs", Arch: "x64", Gens: "V1,V2", PerCPU: 16, CPUs: []int{64, 128}, Restricted: true, Quota: -1},
}

// vmSizes are all sizes by lower-case name, vmSizeNames their names in the order of the catalogue.
var vmSizes, vmSizeNames = func() (map[string]*vmSize, []string) {
	sizes, names := map[string]*vmSize{}, []string{}
	for _, s := range vmSeriesTable {
		for _, n := range s.CPUs {
			size := &vmSize{Name: fmt.Sprintf(s.Pattern, n), Series: s, CPUs: n, Memory: s.PerCPU * float64(n)}
			sizes[strings.ToLower(size.Name)] = size
			names = append(names, size.Name)
		}
	}
	return sizes, names
}()

// findSize finds a size by name; case does not count.
func findSize(name string) *vmSize { return vmSizes[strings.ToLower(name)] }

// families lists the quotas of vCPUs by series, each once.
func vmFamilies() []*vmSeries {
	var out []*vmSeries
	for _, s := range vmSeriesTable {
		if !slices.ContainsFunc(out, func(o *vmSeries) bool { return o.Family == s.Family }) {
			out = append(out, s)
		}
	}
	return out
}

// quota is the default limit of a series' vCPUs in a region.
func (s *vmSeries) quota() int {
	switch {
	case s.Quota < 0:
		return 0
	case s.Quota == 0:
		return 100
	}
	return s.Quota
}

// accelerated says whether a size can do accelerated networking: the smallest of the B series cannot.
func (s *vmSize) accelerated() bool { return !s.Series.NoAccelerated }

// runs says whether a size can run an image of an architecture and Hyper-V generation.
func (s *vmSize) runs(arch, gen string) bool {
	return s.Series.Arch == arch && slices.Contains(strings.Split(s.Series.Gens, ","), gen)
}

// cache and temp are the GiB of its cache and of its local disk.
func (s *vmSize) cache() float64 { return s.Series.CachePerCPU * float64(s.CPUs) }
func (s *vmSize) temp() float64  { return s.Series.TempPerCPU * float64(s.CPUs) }

// placements are the places where an ephemeral OS disk can be ("Ephemeral OS disks for Azure VMs").
func (s *vmSize) placements() []string {
	var out []string
	if s.temp() > 0 {
		out = append(out, "ResourceDisk")
	}
	if s.cache() > 0 {
		out = append(out, "CacheDisk")
	}
	return out
}

// capabilities is the list that the catalogue shows, a choice of what it really has.
func (s *vmSize) capabilities() []any {
	cap := func(name, value string) any { return map[string]any{"name": name, "value": value} }
	yes := func(b bool) string {
		if b {
			return "True"
		}
		return "False"
	}
	more := []any{}
	if s.cache() > 0 {
		more = append(more, cap("CachedDiskBytes", strconv.FormatInt(int64(s.cache()*(1<<30)), 10)))
	}
	if places := s.placements(); len(places) > 0 {
		more = append(more, cap("SupportedEphemeralOSDiskPlacements", strings.Join(places, ",")))
	}
	if !strings.Contains(s.Series.Gens, "V2") {
		more = append(more, cap("TrustedLaunchDisabled", "True"))
	}
	return append([]any{
		cap("MaxResourceVolumeMB", strconv.Itoa(int(s.temp()*1024))),
		cap("OSVhdSizeMB", "1047552"),
		cap("vCPUs", strconv.Itoa(s.CPUs)),
		cap("MemoryPreservingMaintenanceSupported", "True"),
		cap("HyperVGenerations", s.Series.Gens),
		cap("MemoryGB", strconv.FormatFloat(s.Memory, 'f', -1, 64)),
		cap("MaxDataDiskCount", strconv.Itoa(min(4+2*s.CPUs, 32))),
		cap("CpuArchitectureType", s.Series.Arch),
		cap("LowPriorityCapable", yes(!strings.HasPrefix(s.Name, "Standard_B"))),
		cap("PremiumIO", yes(!s.Series.NoHostCrypt)),
		cap("VMDeploymentTypes", "IaaS"),
		cap("vCPUsAvailable", strconv.Itoa(s.CPUs)),
		cap("vCPUsPerCore", map[bool]string{true: "1", false: "2"}[s.Series.Arch == "Arm64"]),
		cap("CombinedTempDiskAndCachedIOPS", strconv.Itoa(4500*s.CPUs)),
		cap("EphemeralOSDiskSupported", yes(s.temp()+s.cache() > 0)),
		cap("EncryptionAtHostSupported", yes(!s.Series.NoHostCrypt)),
		cap("CapacityReservationSupported", "False"),
		cap("AcceleratedNetworkingEnabled", yes(s.accelerated())),
		cap("RdmaEnabled", "False"),
		cap("MaxNetworkInterfaces", strconv.Itoa(min(max(2, s.CPUs/2), 8))),
	}, more...)
}
