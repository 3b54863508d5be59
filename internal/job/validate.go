package job

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// A FieldError is one thing wrong with a request, and how to put it right.
type FieldError struct {
	Field   string `json:"field"`   // JSON path, such as config.spec.pool.count
	Message string `json:"message"` // what is wrong
	Fix     string `json:"fix"`     // what to do
}

// Invalid is a request that is refused: everything wrong with it at once.
type Invalid struct{ Fields []FieldError }

func (e *Invalid) Error() string {
	var parts []string
	for _, f := range e.Fields {
		parts = append(parts, fmt.Sprintf("%s: %s; %s", f.Field, f.Message, f.Fix))
	}
	return strings.Join(parts, "\n")
}

func (e *Invalid) add(field, message, fix string) {
	e.Fields = append(e.Fields, FieldError{field, message, fix})
}

func (e *Invalid) orNil() error {
	if len(e.Fields) == 0 {
		return nil
	}
	return e
}

var (
	nameRE   = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)
	regionRE = regexp.MustCompile(`^[a-z][a-z0-9-]{1,40}$`)

	gcpKeyRE   = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,62}$`)
	gcpValueRE = regexp.MustCompile(`^[a-z0-9_-]{0,63}$`)
)

// VMSpec decodes the spec of a VM job, with defaults filled in. A field that
// the schema does not have is an *Invalid that names it.
func (j *Job) VMSpec() (VMSpec, error) {
	var s VMSpec
	if err := strictly(j.Config.Spec, &s); err != nil {
		return s, err
	}
	if err := explicitZeros(j.Config.Spec); err != nil {
		return s, err
	}
	return s.WithDefaults(j.Provider), nil
}

// explicitZeros refuses a 0 that was written out where leaving the field out
// means a default: nobody who asks for no VMs wants two.
func explicitZeros(raw json.RawMessage) error {
	if len(raw) == 0 {
		return nil
	}
	type number struct {
		field string
		value *int
	}
	var z struct {
		Pool         struct{ Count, DiskGiB *int }
		Network      struct{ Zones *int }
		LoadBalancer struct {
			Port        *int
			HealthCheck struct{ Port *int }
		}
	}
	if err := json.Unmarshal(raw, &z); err != nil {
		return decodeError(err)
	}
	var inv Invalid
	for _, n := range []number{
		{"pool.count", z.Pool.Count}, {"pool.diskGiB", z.Pool.DiskGiB}, {"network.zones", z.Network.Zones},
		{"loadBalancer.port", z.LoadBalancer.Port}, {"loadBalancer.healthCheck.port", z.LoadBalancer.HealthCheck.Port},
	} {
		if n.value != nil && *n.value == 0 {
			inv.add("config.spec."+n.field, "is 0", "use 1 or more, or leave it out for the default")
		}
	}
	return inv.orNil()
}

// strictly decodes a spec; a field that the schema does not have is an *Invalid
// that names it.
func strictly(raw json.RawMessage, into any) error {
	if len(raw) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return decodeError(err)
	}
	return nil
}

func decodeError(err error) error {
	var inv Invalid
	var te *json.UnmarshalTypeError
	switch {
	case errors.As(err, &te):
		field, want := "config.spec", "JSON object"
		if te.Field != "" {
			field, want = field+"."+te.Field, te.Type.String()
		}
		if te.Type.Kind() == reflect.Struct {
			want = "JSON object"
		}
		fix := "give a " + want
		if want == "string" && te.Value == "number" {
			fix += `: in YAML and for --set it stands in quotes, such as "17"`
		}
		inv.add(field, "is of type "+te.Value, fix)
	case strings.HasPrefix(err.Error(), "json: unknown field "):
		name := strings.Trim(strings.TrimPrefix(err.Error(), "json: unknown field "), `"`)
		inv.add("config.spec."+name, "is not a field of this resource type's spec", "leave it out, or see the schema at /docs")
	default:
		inv.add("config.spec", "is not a JSON object", "send an object")
	}
	return &inv
}

// Validate checks everything about a request that needs no cloud: one error a
// mistake, all of them at once. What only the cloud can say, stepValidate asks.
func (j *Job) Validate() error {
	var inv Invalid
	if !nameRE.MatchString(j.Name) {
		inv.add("name", fmt.Sprintf("%q is not a name", j.Name), "use 1 to 63 of a-z, 0-9 and hyphen, starting with a letter and not ending with a hyphen")
	}
	if j.Kind != Provisioning && j.Kind != Remediation {
		inv.add("kind", fmt.Sprintf("%q is not a kind of job", j.Kind), "use provisioning or remediation")
	}
	if !slices.Contains([]Mode{ModeCreate, ModeCreateInExisting, ModeAdopt}, j.Mode) {
		inv.add("mode", fmt.Sprintf("%q is not a mode", j.Mode), "use create, create_in_existing or adopt")
	}
	j.validateRegion(&inv)
	j.validateLabels(&inv)
	known := slices.Contains([]Provider{AWS, GCP, Azure}, j.Provider)
	if !known {
		inv.add("provider", fmt.Sprintf("%q is not a cloud that this version knows", j.Provider), "use aws, gcp or azure")
	}
	if !slices.Contains([]ResourceType{Cache, Cluster, Component, Datastore, Network, VM}, j.ResourceType) {
		inv.add("resourceType", fmt.Sprintf("%q is not a resource type that this version provisions", j.ResourceType), "use cache, cluster, component, datastore, network or vm")
	} else if j.Kind == Remediation {
		j.validateRemediation(&inv)
	} else if known {
		j.validateSpec(&inv)
	}
	return inv.orNil()
}

// validateSpec checks the spec of a family at a cloud, both of which exist.
func (j *Job) validateSpec(inv *Invalid) {
	var err error
	switch j.ResourceType {
	case VM:
		var spec VMSpec
		if spec, err = j.VMSpec(); err == nil {
			j.validateVM(spec, inv)
		}
	case Network:
		var spec NetworkJobSpec
		if spec, err = j.NetworkJob(); err == nil {
			j.validateNetworkJob(spec, inv)
		}
	case Cluster:
		var spec ClusterSpec
		if spec, err = j.ClusterSpec(); err == nil {
			j.validateCluster(spec, inv)
		}
	case Datastore, Cache:
		var spec DatastoreSpec
		if spec, err = j.DatastoreSpec(); err == nil {
			j.validateDatastore(spec, inv)
		}
	case Component:
		var spec ComponentJobSpec
		if spec, err = j.ComponentJob(); err == nil {
			j.validateComponentJob(spec, inv)
		}
	}
	var bad *Invalid
	if errors.As(err, &bad) {
		inv.Fields = append(inv.Fields, bad.Fields...)
	}
}

// validateLabels checks what becomes tags or labels of everything that is made.
func (j *Job) validateLabels(inv *Invalid) {
	if len(j.Labels) > 40 {
		inv.add("labels", fmt.Sprintf("there are %d", len(j.Labels)), "use 40 at most: clouds take 50 a resource, and the rest are ours")
	}
	spelt := map[string]string{}
	for _, k := range slices.Sorted(maps.Keys(j.Labels)) {
		field, v := "labels."+k, j.Labels[k]
		// "Tag names are case-insensitive for operations" (Azure); nowhere do two that
		// differ in case alone help anybody.
		if other := spelt[strings.ToLower(k)]; other != "" {
			inv.add(field, "differs from "+other+" in case alone", "leave one of them out")
			continue
		}
		spelt[strings.ToLower(k)] = k
		switch {
		case k == "" || len(k) > 63:
			inv.add(field, "the key has "+fmt.Sprint(len(k))+" characters", "use 1 to 63")
		// Only the prefix "aws:" is reserved, in any case; aws_team and awsx are fine.
		case strings.HasPrefix(strings.ToLower(k), "aws:"):
			inv.add(field, "the prefix aws: belongs to the cloud", "choose another key")
		case strings.HasPrefix(strings.ToLower(k), MarkPrefix) || k == "Name":
			inv.add(field, "is reserved for the provisioner's own marks", "choose another key")
		case len(v) > 255:
			inv.add(field, fmt.Sprintf("the value has %d characters", len(v)), "use 255 at most")
		case !printable(k) || !printable(v):
			inv.add(field, "has characters that not every cloud takes in a tag", "use letters, digits, spaces and _ . : / = + - @")
		case j.Provider == GCP:
			gcpLabelFault(field, k, v, inv)
		case j.Provider == Azure:
			azureTagFault(field, k, inv)
		}
	}
}

// gcpLabelFault names what Google Cloud does not take in a label ("Label format":
// lower case, digits, hyphen and underscore; 63 characters).
func gcpLabelFault(field, k, v string, inv *Invalid) {
	switch {
	case strings.HasPrefix(k, "zopday-"):
		inv.add(field, "is reserved for the provisioner's own marks", "choose another key")
	case !gcpKeyRE.MatchString(k):
		inv.add(field, "is not a label key at Google Cloud", "use a-z, 0-9, hyphen and underscore, starting with a letter")
	case !gcpValueRE.MatchString(v):
		inv.add(field, fmt.Sprintf("%.70q is not a label value at Google Cloud", v), "use at most 63 of a-z, 0-9, hyphen and underscore")
	}
}

// azureTagFault names what Azure does not take in a tag's name ("Use tags to
// organize your Azure resources": reserved prefixes and characters).
func azureTagFault(field, k string, inv *Invalid) {
	low := strings.ToLower(k)
	for _, p := range []string{"microsoft", "azure", "windows"} {
		if strings.HasPrefix(low, p) {
			inv.add(field, "the prefix "+p+" belongs to the cloud", "choose another key")
			return
		}
	}
	if strings.ContainsAny(k, `<>%&\?/`) {
		inv.add(field, "has a slash, which Azure does not take in a tag's name", "use another character")
	}
}

func printable(s string) bool {
	for _, r := range s {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(" _.:/=+-@", r)) {
			return false
		}
	}
	return true
}
