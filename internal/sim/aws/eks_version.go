package aws

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/eks/types"
)

// eksVersion is a Kubernetes version that EKS offers or has offered.
type eksVersion struct {
	Version, Patch               string
	Released, Standard, Extended time.Time // release, end of standard and of extended support
	Build                        int       // number of the platform version
}

func day(y int, m time.Month, d int) time.Time { return time.Date(y, m, d, 0, 0, 0, 0, time.UTC) }

// eksVersions are the versions, oldest first ("Review release notes for Kubernetes versions", Amazon EKS user guide).
var eksVersions = []eksVersion{
	{"1.30", "1.30.14", day(2024, 5, 23), day(2025, 7, 23), day(2026, 7, 23), 60},
	{"1.31", "1.31.14", day(2024, 9, 26), day(2025, 11, 26), day(2026, 11, 26), 52},
	{"1.32", "1.32.13", day(2025, 1, 23), day(2026, 3, 23), day(2027, 3, 23), 45},
	{"1.33", "1.33.12", day(2025, 5, 29), day(2026, 7, 29), day(2027, 7, 29), 38},
	{"1.34", "1.34.9", day(2025, 10, 2), day(2026, 12, 2), day(2027, 12, 2), 26},
	{"1.35", "1.35.5", day(2026, 1, 27), day(2027, 3, 27), day(2028, 3, 27), 16},
	{"1.36", "1.36.2", day(2026, 6, 2), day(2027, 8, 2), day(2028, 8, 2), 7},
}

// defaultAge is how long a version has been offered before it becomes the default one: "the default might not be the
// latest" (CreateCluster).
const defaultAge = 240 * 24 * time.Hour

func (v eksVersion) platform() string { return "eks." + strconv.Itoa(v.Build) }

// status is how far a version is supported at a time.
func (v eksVersion) status(now time.Time) string {
	switch {
	case now.Before(v.Standard):
		return "STANDARD_SUPPORT"
	case now.Before(v.Extended):
		return "EXTENDED_SUPPORT"
	}
	return "UNSUPPORTED"
}

func (v eksVersion) minor() int {
	_, minor, _ := strings.Cut(v.Version, ".")
	n, _ := strconv.Atoi(minor) // the table has numbers only
	return n
}

func findVersion(version string) (eksVersion, bool) {
	i := slices.IndexFunc(eksVersions, func(v eksVersion) bool { return v.Version == version })
	if i < 0 {
		return eksVersion{}, false
	}
	return eksVersions[i], true
}

// defaultVersion is the version of a cluster that is asked for without one.
func defaultVersion(now time.Time) eksVersion {
	for _, v := range slices.Backward(eksVersions) {
		if now.Sub(v.Released) >= defaultAge {
			return v
		}
	}
	return eksVersions[0]
}

// creatable resolves the version of a new cluster.
func (s *eksService) creatable(cluster, version string) (eksVersion, error) {
	now := s.cloud.World.Now()
	if version == "" {
		return defaultVersion(now), nil
	}
	v, ok := findVersion(version)
	if !ok || v.status(now) == "UNSUPPORTED" || now.Before(v.Released) {
		return v, invalidParameter(cluster, "unsupported Kubernetes version")
	}
	return v, nil
}

func (s *eksService) describeVersions(c *reqCtx, in *eks.DescribeClusterVersionsInput) (*eks.DescribeClusterVersionsOutput, error) {
	superseded := string(in.Status) //nolint:staticcheck // clients of last year still send it
	if superseded != "" && in.VersionStatus != "" {
		return nil, invalidParameter("", "Only one of status and versionStatus can be given.")
	}
	if t := deref(in.ClusterType); t != "" && t != "eks" {
		return nil, invalidParameter("", "The cluster type %s is invalid.", t)
	}
	def, all := defaultVersion(c.now), []types.ClusterVersionInformation{}
	for _, v := range slices.Backward(eksVersions) {
		status := v.status(c.now)
		old := strings.ToLower(strings.ReplaceAll(status, "_", "-"))
		switch {
		case c.now.Before(v.Released),
			len(in.ClusterVersions) > 0 && !slices.Contains(in.ClusterVersions, v.Version),
			in.VersionStatus != "" && string(in.VersionStatus) != status,
			superseded != "" && superseded != old,
			deref(in.DefaultOnly) && v.Version != def.Version,
			status == "UNSUPPORTED" && !deref(in.IncludeAll) && in.VersionStatus == "" && superseded == "" && len(in.ClusterVersions) == 0:
			continue
		}
		all = append(all, types.ClusterVersionInformation{ClusterType: new("eks"), ClusterVersion: new(v.Version), DefaultPlatformVersion: new(v.platform()),
			DefaultVersion: v.Version == def.Version, ReleaseDate: new(v.Released), EndOfStandardSupportDate: new(v.Standard), EndOfExtendedSupportDate: new(v.Extended),
			KubernetesPatchVersion: new(v.Patch), Status: types.ClusterVersionStatus(status), VersionStatus: types.VersionStatus(status)})
	}
	page, next, err := eksPage(c, all, in.NextToken, in.MaxResults)
	return &eks.DescribeClusterVersionsOutput{ClusterVersions: page, NextToken: next}, err
}

// upgradable checks a change from one version to another: one minor version at a time, and not back.
func (s *eksService) upgradable(k *EKSCluster, version string) (eksVersion, error) {
	from, _ := findVersion(k.Version)
	to, err := s.creatable(k.Name, version)
	switch {
	case err != nil:
		return to, err
	case version == "":
		return to, invalidParameter(k.Name, "Version can not be empty.")
	case to.minor() != from.minor()+1:
		return to, invalidParameter(k.Name, "Unsupported Kubernetes minor version update from %s to %s", k.Version, version)
	}
	for _, name := range sortedKeys(k.Nodegroups) {
		// The kubelet may be three minor versions older than the API server ("Version Skew Policy", kubernetes.io).
		if v, ok := findVersion(k.Nodegroups[name].Version); ok && to.minor()-v.minor() > 3 {
			return to, invalidRequest(k.Name, "Nodegroup %s has Kubernetes version %s, which is too old for version %s of the control plane.", name, v.Version, to.Version)
		}
	}
	return to, nil
}

// release is the newest node image for a version of Kubernetes, as node groups name it.
func (v eksVersion) release(amiType string) string {
	if strings.HasPrefix(amiType, "BOTTLEROCKET") {
		return "1.52.0-a1b2c3d4"
	}
	return fmt.Sprintf("%s-20261114", v.Patch)
}
