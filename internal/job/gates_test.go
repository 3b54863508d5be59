package job

import (
	"strings"
	"testing"
)

func TestParseGates(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]bool{"": false, "AzureVMSS": true, " AzureVMSS=true ,": true, "AzureVMSS=false": false} {
		gates, err := ParseGates(list)
		if err != nil || gates[AzureVMSS] != want {
			t.Errorf("%q: %v, %v", list, gates, err)
		}
	}
	for list, says := range map[string]string{"AzureVmss": "there is AzureVMSS", "AzureVMSS=on!": "neither true nor false"} {
		if _, err := ParseGates(list); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", list, err)
		}
	}
}
