package provision

import (
	stdcmp "cmp"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/job"
)

func TestDecodeTakesWhatIsRight(t *testing.T) {
	t.Parallel()
	var r CreateRequest
	err := Decode([]byte(`{"resourceType":"vm","provider":"aws","name":"a","region":"us-east-1","labels":{"k":"v"},"submit":true,
		"config":{"spec":{"pool":{"mode":"asg","min":0,"max":3,"size":{"vcpus":2,"memoryGiB":4}},"existing":{"subnetIds":["a","b"]},"loadBalancer":null}}}`), &r)
	if err != nil {
		t.Fatal(err)
	}
	want := CreateRequest{ResourceType: job.VM, Provider: job.AWS, Name: "a", Region: "us-east-1", Labels: map[string]string{"k": "v"}, Submit: true,
		Config: ConfigRequest{Spec: json.RawMessage(`{"existing":{"subnetIds":["a","b"]},"loadBalancer":null,"pool":{"max":3,"min":0,"mode":"asg","size":{"memoryGiB":4,"vcpus":2}}}`)}}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Error(diff)
	}
}

func TestDecodeSaysHowToPutItRight(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"nam":"a"}`:             "nam: is not a field here; use name, or leave it out",
		`{"somethingElse":1}`:     "somethingElse: is not a field here; leave it out; the fields here are cloudAccountId, config, kind, labels, mode, name, provider, region, resourceType, submit, team",
		`{"status":"queued"}`:     "status: is set by the server; leave it out",
		`{"submit":"yes"}`:        "submit: is a string; give true or false",
		`{"labels":{"a":1}}`:      "labels.a: is a number; give a string",
		`{"labels":["a"]}`:        "labels: is a list; give an object",
		`{"name":null}`:           "name: is null; leave it out, or give a string",
		`{"config":{"spec":"x"}}`: "config.spec: is a string; give an object",
		`{"resourceType":"vm","config":{"spec":{"existing":{"subnetIds":["a",2]}}}}`:          "config.spec.existing.subnetIds[1]: is a number; give a string",
		`{"resourceType":"vm","config":{"spec":{"loadBalancer":{"healthCheck":{"prot":1}}}}}`: "config.spec.loadBalancer.healthCheck.prot: is not a field here; use port, or leave it out",
	} {
		var r CreateRequest
		err := Decode([]byte(body), &r)
		var refusal *Refusal
		if !errors.As(err, &refusal) || len(refusal.Fields) != 1 {
			t.Errorf("%s: %v", body, err)
			continue
		}
		f := refusal.Fields[0]
		if got := f.Field + ": " + f.Message + "; " + f.Fix; got != want {
			t.Errorf("%s:\n got %s\nwant %s", body, got, want)
		}
	}
}

func TestDecodeSaysWhere(t *testing.T) {
	t.Parallel()
	var r CreateRequest
	err := Decode([]byte("{\n  \"name\": \"a\",\n  \"region\" \"x\"\n}"), &r)
	if err == nil || !strings.Contains(err.Error(), "line 3, column 12") {
		t.Errorf("%v", err)
	}
}

// FuzzDecodeStrictly looks for input that panics, that is taken though encoding/json
// refuses it, or that comes out other than encoding/json reads it.
func FuzzDecodeStrictly(f *testing.F) {
	for _, s := range []string{
		`{"name":"a"}`, `{"config":{"spec":{"pool":{"count":2}}},"resourceType":"vm"}`, `{"a":1,"a":2}`, `[`, `{"name":"\u0000"}`, `{"labels":{"a":"b"}}`,
		`{"name":"\ud83d\ude00"}`, `{"config":{"spec":{"x":1e5}}}`, "\ufeff{}", `{"config":{"spec":{"n":-0}}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var got CreateRequest
		err := Decode(body, &got)
		if err != nil {
			var refusal *Refusal
			if !errors.As(err, &refusal) || refusal.Error() == "" {
				t.Fatalf("%q: an error that says nothing: %v", body, err)
			}
			if len(refusal.Fields) > 2*maxFieldErrors+1 {
				t.Fatalf("%d messages", len(refusal.Fields))
			}
			return
		}
		var want CreateRequest
		if err := json.Unmarshal(body, &want); err != nil {
			t.Fatalf("%q was taken, and encoding/json says %v", body, err)
		}
		var a, b any
		if len(got.Config.Spec) > 0 {
			if err := json.Unmarshal(got.Config.Spec, &a); err != nil {
				t.Fatalf("%q: the spec came out as %q", body, got.Config.Spec)
			}
			if err := json.Unmarshal(want.Config.Spec, &b); err != nil || !reflect.DeepEqual(a, b) {
				t.Fatalf("%q: the spec came out as %s", body, got.Config.Spec)
			}
		}
		got.Config.Spec, want.Config.Spec = nil, nil
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%q:\n got %+v\nwant %+v", body, got, want)
		}
	})
}

func TestMergePatch(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ spec, patch, want, paths string }{
		{`{"a":{"b":1,"c":2}}`, `{"a":{"b":3}}`, `{"a":{"b":3,"c":2}}`, "a.b"},
		{`{"a":{"b":1,"c":2}}`, `{"a":{"b":null}}`, `{"a":{"c":2}}`, "a.b"},
		{`{"a":1}`, `{"a":{"b":1}}`, `{"a":{"b":1}}`, "a"},
		{`{"a":[1,2]}`, `{"a":[1]}`, `{"a":[1]}`, "a"},
		{`{}`, `{"pool":{"count":1}}`, `{"pool":{"count":1}}`, "pool.count"},
		{`{"pool":{"count":1,"image":"x"}}`, `{"pool":null}`, `{}`, "pool.count pool.image"},
		{`{}`, `{"loadBalancer":{"plainHTTP":true}}`, `{"loadBalancer":{"plainHTTP":true}}`, "loadBalancer"},
		{`{"loadBalancer":{"plainHTTP":true}}`, `{"loadBalancer":null}`, `{}`, "loadBalancer"},
		{`{"a":1}`, `{"a":1}`, `{"a":1}`, ""},
		{``, `{"a":1}`, `{"a":1}`, "a"},
	} {
		got, err := merge(json.RawMessage(tc.spec), json.RawMessage(tc.patch))
		if err != nil || string(got) != tc.want {
			t.Errorf("%s with %s: %s, %v", tc.spec, tc.patch, got, err)
		}
		paths, err := changedPaths(json.RawMessage(stdcmp.Or(tc.spec, "{}")), got)
		if err != nil || strings.Join(paths, " ") != tc.paths {
			t.Errorf("%s with %s changes %v, %v", tc.spec, tc.patch, paths, err)
		}
	}
}
