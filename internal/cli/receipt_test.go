package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/job"
)

// A receipt names what the scan could not list, and says "found" of the rest alone.
func TestReceiptNamesWhatWasNotScanned(t *testing.T) {
	f := newFake(t)
	f.addJob(aJob(job.Failed, job.PhaseTeardown))
	text := `{"jobId":"job_one","name":"shop-prod","left":null,"summary":"The removal stopped.",
		"scan":{"at":"2026-12-01T02:00:00Z","found":0,"note":"looked through the account just now","notScanned":[{"kind":"eks:cluster","permission":"eks:ListClusters","why":"denied"}]}}`
	if err := json.Unmarshal([]byte(text), &f.receipt); err != nil {
		t.Fatal(err)
	}
	got := run(t, f).do("jobs", "receipt", "shop-prod")
	for _, s := range []string{"0 found of what could be listed", "eks:cluster; the credentials lack eks:ListClusters", "not known: the cloud was not asked for everything"} {
		if !strings.Contains(got.out, s) {
			t.Errorf("the receipt lacks %q:\n%s%s", s, got.out, got.err)
		}
	}
	f.receipt.Scan.NotScanned = nil
	if got := run(t, f).do("jobs", "receipt", "shop-prod"); strings.Contains(got.out, "of what could be listed") || !strings.Contains(got.out, "0 found at") {
		t.Errorf("with everything listed:\n%s", got.out)
	}
}
