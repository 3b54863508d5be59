package job

import (
	"fmt"
	"strconv"
	"strings"
)

// A Gate switches on what is in preview, and off by default.
type Gate string

// AzureVMSS lets VM jobs run on Azure: virtual machine scale sets, the Standard
// load balancer and the Run Command exec channel.
const AzureVMSS Gate = "AzureVMSS"

// Gates are the feature gates that are on.
type Gates map[Gate]bool

// ParseGates reads a list such as "AzureVMSS=true"; a gate alone is on. A gate
// that does not exist is an error, so that a slip never leaves one off unseen.
func ParseGates(list string) (Gates, error) {
	gates := Gates{}
	for word := range strings.SplitSeq(list, ",") {
		if word = strings.TrimSpace(word); word == "" {
			continue
		}
		name, value, given := strings.Cut(word, "=")
		on := true
		if given {
			var err error
			if on, err = strconv.ParseBool(value); err != nil {
				return nil, fmt.Errorf("feature gate %s: %q is neither true nor false", name, value)
			}
		}
		if Gate(name) != AzureVMSS {
			return nil, fmt.Errorf("there is no feature gate %q; there is %s", name, AzureVMSS)
		}
		gates[Gate(name)] = on
	}
	return gates, nil
}
