package gcp

import (
	"slices"
	"strconv"
	"strings"
)

// A channelVersions is what a release channel offers: the newest first.
type channelVersions struct {
	channel, byDefault string
	valid              []string
}

// The versions of GKE at the end of November 2026. 1.35.8-gke.1036000 is the default of the regular channel by its release notes
// of 17 September 2026, 1.36 has been in it since 9 June, and the support of 1.34 ended on 1 October, but for the extended channel;
// the others are made up in their manner.
const defaultVersion = "1.35.8-gke.1036000"

var channels = []channelVersions{
	{"RAPID", "1.36.4-gke.1220000", []string{"1.36.5-gke.1041000", "1.36.4-gke.1220000", "1.35.9-gke.1102000", defaultVersion}},
	{"REGULAR", defaultVersion, []string{"1.36.4-gke.1220000", "1.36.3-gke.1118000", "1.35.8-gke.1225000", defaultVersion}},
	{"STABLE", "1.35.7-gke.1093000", []string{"1.36.2-gke.1077000", defaultVersion, "1.35.7-gke.1093000", "1.35.6-gke.1061000"}},
	{"EXTENDED", defaultVersion, []string{"1.36.3-gke.1118000", defaultVersion, "1.34.10-gke.1195000", "1.33.14-gke.1047000", "1.32.17-gke.1030000"}},
}

func channelOf(name string) (channelVersions, bool) {
	i := slices.IndexFunc(channels, func(c channelVersions) bool { return c.channel == name })
	if i < 0 {
		return channelVersions{}, false
	}
	return channels[i], true
}

// allVersions are the versions of all channels, the newest first.
func allVersions() []string {
	var out []string
	for _, c := range channels {
		out = append(out, c.valid...)
	}
	slices.SortFunc(out, func(a, b string) int { return compareVersions(b, a) })
	return slices.Compact(out)
}

// compareVersions compares versions such as 1.35.8-gke.1036000.
func compareVersions(a, b string) int {
	parts := func(v string) []string { return strings.Split(strings.Replace(v, "-gke", "", 1), ".") }
	x, y := parts(a), parts(b)
	for i := range min(len(x), len(y)) {
		m, _ := strconv.Atoi(x[i]) // digits by construction or by versionLike
		n, _ := strconv.Atoi(y[i])
		if m != n {
			return m - n
		}
	}
	return len(x) - len(y)
}

// minor is the first two numbers of a version.
func minor(version string) string {
	parts := strings.SplitN(version, ".", 3)
	return strings.Join(parts[:min(2, len(parts))], ".")
}

// resolveVersion finds the version that a text stands for ("Versioning and upgrades": 1.X, 1.X.Y, 1.X.Y-gke.N, latest, -).
func resolveVersion(c channelVersions, text string) (string, bool) {
	switch text {
	case "", "-":
		return c.byDefault, true
	case "latest":
		return c.valid[0], true
	}
	if strings.HasPrefix(c.byDefault, text) {
		return c.byDefault, true
	}
	for _, v := range c.valid {
		if v == text || strings.HasPrefix(v, text+".") || strings.HasPrefix(v, text+"-") {
			return v, true
		}
	}
	return "", false
}

// settleVersion chooses channel and version of a cluster. Clusters without a channel are closed to new customers ("No channel").
func (s *container) settleVersion(_ *request, c *cluster) error {
	channel := str(sub(c.Doc, "releaseChannel"), "channel")
	if channel == "" {
		channel = "REGULAR"
	}
	versions, ok := channelOf(channel)
	if !ok {
		return s.containerInvalid("Clusters must be enrolled in a release channel: the channel %q is not supported for new clusters.", channel)
	}
	c.Doc["releaseChannel"] = Doc{"channel": channel}
	asked := str(c.Doc, "initialClusterVersion")
	version, ok := resolveVersion(versions, asked)
	if !ok {
		return s.containerInvalid("No valid versions with the prefix %q found in the release channel %s.", asked, channel)
	}
	c.Doc["initialClusterVersion"] = version
	return nil
}

// serverConfig answers the versions that a location offers.
func (s *container) serverConfig(r *request) (any, error) {
	location := segmentAfter(r.Path["name"], "locations")
	if !regionExists(location) && !zoneExists(location) {
		return nil, s.containerInvalid("Location %q does not exist.", location)
	}
	var list []any
	for _, c := range channels {
		list = append(list, Doc{"channel": c.channel, "defaultVersion": c.byDefault, "validVersions": anys(c.valid), "upgradeTargetVersion": c.byDefault})
	}
	return Doc{"defaultClusterVersion": defaultVersion, "validMasterVersions": anys(allVersions()), "validNodeVersions": anys(allVersions()), "defaultImageType": "COS_CONTAINERD",
		"validImageTypes": anys(imageTypes), "channels": list}, nil
}

// imageTypes are the images that nodes can have ("Node images"); all run the same here.
var imageTypes = []string{"COS_CONTAINERD", "UBUNTU_CONTAINERD", "WINDOWS_LTSC_CONTAINERD"}
