package job

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

var (
	gcpRegionRE   = regexp.MustCompile(`^[a-z]+-[a-z]+[0-9]{1,2}$`)
	gcpZoneRE     = regexp.MustCompile(`^([a-z]+-[a-z]+[0-9]{1,2})-[a-z]$`)
	azureRegionRE = regexp.MustCompile(`^[a-z]+[0-9]{0,2}(euap|stage)?$`)
)

// validateRegion says what is wrong with the region's name, as far as that can
// be told without asking the cloud.
func (j *Job) validateRegion(inv *Invalid) {
	example := map[Provider]string{GCP: "us-central1", Azure: "westeurope"}[j.Provider]
	if example == "" {
		example = "us-east-1"
	}
	wrong := func(fix string) {
		inv.add("region", fmt.Sprintf("%q is not a region's name", j.Region), fix)
	}
	if !regionRE.MatchString(j.Region) {
		if low := strings.ReplaceAll(strings.ToLower(j.Region), " ", ""); j.Provider == Azure && azureRegionRE.MatchString(low) && low != "" {
			wrong("use its short name, " + low)
			return
		}
		wrong("give the cloud's own name, such as " + example)
		return
	}
	switch j.Provider {
	case AWS:
		if message, fix := awsRegionFault(j.Region); message != "" {
			inv.add("region", message, fix)
		}
	case GCP:
		if m := gcpZoneRE.FindStringSubmatch(j.Region); m != nil {
			inv.add("region", fmt.Sprintf("%q is a zone", j.Region), "give its region, "+m[1])
		} else if !gcpRegionRE.MatchString(j.Region) {
			wrong("give Google Cloud's own name, such as " + example)
		}
	case Azure:
		if !azureRegionRE.MatchString(j.Region) {
			wrong("give Azure's short name, such as " + example)
		}
	}
}

// awsPlaces are the places of AWS's regions by geography, without their number,
// as of November 2026. The list serves to name typing mistakes; a region that is
// not in it, and resembles none that is, is left to the cloud to judge.
var awsPlaces = map[string][]string{
	"us": {"east", "west", "gov-east", "gov-west"}, "ca": {"central", "west"}, "mx": {"central"}, "sa": {"east"},
	"eu": {"west", "central", "north", "south"}, "af": {"south"}, "me": {"south", "central"}, "il": {"central"},
	"ap": {"east", "south", "southeast", "northeast"}, "cn": {"north", "northwest"}, "eusc": {"de-east"},
}

// awsRegionFault says what is wrong with an AWS region's name; "" if nothing
// that can be told without asking.
func awsRegionFault(region string) (message, fix string) {
	const example = "use a region's name such as us-east-1"
	parts := strings.Split(region, "-")
	last := parts[len(parts)-1]
	if len(parts) < 3 || len(last) != 1 || last[0] < '1' || last[0] > '9' {
		return fmt.Sprintf("%q is not the name of an AWS region", region), example
	}
	place := strings.Join(parts[1:len(parts)-1], "-")
	if slices.Contains(awsPlaces[parts[0]], place) {
		return "", ""
	}
	for _, known := range awsPlaces[parts[0]] {
		if oneSlip(place, known) {
			return fmt.Sprintf("%q is not the name of an AWS region", region), fmt.Sprintf("use %s-%s-%s, if that is what was meant", parts[0], known, last)
		}
	}
	return "", ""
}

// oneSlip reports whether a word is another one with a letter too many, too few,
// wrong, or swapped with its neighbour.
func oneSlip(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	i := 0
	for i < len(a) && a[i] == b[i] {
		i++
	}
	switch len(b) - len(a) {
	case 0:
		swapped := i+1 < len(a) && a[i] == b[i+1] && a[i+1] == b[i] && a[i+2:] == b[i+2:]
		return a != b && (swapped || a[i+1:] == b[i+1:])
	case 1:
		return a[i:] == b[i+1:]
	}
	return false
}
