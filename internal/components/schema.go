package components

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	chart "helm.sh/helm/v4/pkg/chart/v2"

	"github.com/zopday/provisioner/internal/job"
)

// checkSchema checks values against the schemas of a chart and of the charts in
// it. Every fault names the value's path. Nothing of the values is told.
func checkSchema(ch *chart.Chart, values map[string]any, path string) ([]job.FieldError, error) {
	var out []job.FieldError
	if len(ch.Schema) > 0 {
		faults, err := againstSchema(ch.Schema, values, path)
		if err != nil {
			return nil, fmt.Errorf("the schema of the chart %s: %w", ch.Name(), err)
		}
		out = append(out, faults...)
	}
	for _, sub := range ch.Dependencies() {
		of, given := values[sub.Name()]
		if !given || of == nil {
			continue
		}
		object, ok := of.(map[string]any)
		if !ok {
			out = append(out, job.FieldError{Field: path + "." + sub.Name(), Message: "is not an object", Fix: "give the values of the chart " + sub.Name() + " in it as an object"})
			continue
		}
		faults, err := checkSchema(sub, object, path+"."+sub.Name())
		if err != nil {
			return nil, err
		}
		out = append(out, faults...)
	}
	return out, nil
}

// nowhere does not fetch: a schema that refers to one elsewhere takes anything there.
type nowhere struct{}

func (nowhere) Load(string) (any, error) { return true, nil }

func againstSchema(schema []byte, values map[string]any, path string) (out []job.FieldError, err error) {
	defer func() {
		if v := recover(); v != nil { // the library panics on some schemas that are none
			err = fmt.Errorf("cannot be used: %v", v)
		}
	}()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return nil, err
	}
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(nowhere{})
	const here = "file:///values.schema.json"
	if err := compiler.AddResource(here, doc); err != nil {
		return nil, err
	}
	compiled, err := compiler.Compile(here)
	if err != nil {
		return nil, err
	}
	// What templates get may hold types of Helm's own; the schema sees plain JSON.
	raw, err := json.Marshal(values)
	if err != nil {
		return nil, err
	}
	instance, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	var fault *jsonschema.ValidationError
	if errors.As(compiled.Validate(instance), &fault) {
		collect(fault, path, &out)
	}
	return out, nil
}

// collect turns a tree of faults into the ones at its leaves. Alternatives that
// all fail are one fault, where they are asked for.
func collect(e *jsonschema.ValidationError, path string, out *[]job.FieldError) {
	switch e.ErrorKind.(type) {
	case *kind.AnyOf, *kind.OneOf, *kind.Not:
	default:
		if len(e.Causes) > 0 {
			for _, c := range e.Causes {
				collect(c, path, out)
			}
			return
		}
	}
	var at strings.Builder
	at.WriteString(path)
	for _, p := range e.InstanceLocation {
		if _, err := strconv.Atoi(p); err == nil {
			at.WriteString("[" + p + "]")
		} else {
			at.WriteString("." + p)
		}
	}
	for _, f := range describe(e.ErrorKind) {
		f.Field = at.String() + f.Field
		*out = append(*out, f)
	}
}

// article puts a or an before a noun of the schema, such as integer.
func article(noun string) string {
	if noun != "" && strings.ContainsRune("aeiou", rune(noun[0])) {
		return "an " + noun
	}
	return "a " + noun
}

// describe says what is wrong, without the value itself: it may be a secret.
func describe(k jsonschema.ErrorKind) []job.FieldError {
	one := func(message, fix string) []job.FieldError { return []job.FieldError{{Message: message, Fix: fix}} }
	each := func(names []string, message, fix string) (out []job.FieldError) {
		for _, n := range names {
			out = append(out, job.FieldError{Field: "." + n, Message: message, Fix: fix})
		}
		return out
	}
	switch k := k.(type) {
	case *kind.Type:
		return one("is of type "+k.Got, "give "+article(strings.Join(k.Want, " or ")))
	case *kind.Enum:
		var want []string
		for _, w := range k.Want {
			want = append(want, strconv.Quote(fmt.Sprint(w)))
		}
		return one("is not one of the values that the chart takes", "use one of "+strings.Join(want, ", "))
	case *kind.Const:
		return one("is not what the chart takes", fmt.Sprintf("use %q", fmt.Sprint(k.Want)))
	case *kind.Required:
		return each(k.Missing, "is missing", "the chart asks for it")
	case *kind.AdditionalProperties:
		return each(k.Properties, "is not a value of this chart", "leave it out, or see the chart's values.schema.json")
	case *kind.Pattern:
		return one("does not have the form that the chart asks for", "match "+k.Want)
	case *kind.Format:
		return one("is not a "+k.Want, "give a "+k.Want)
	case *kind.Minimum:
		return one("is too small", "give "+k.Want.RatString()+" or more")
	case *kind.Maximum:
		return one("is too large", "give "+k.Want.RatString()+" or less")
	case *kind.MinLength:
		return one(fmt.Sprintf("has %d characters", k.Got), fmt.Sprintf("give %d or more", k.Want))
	case *kind.MaxLength:
		return one(fmt.Sprintf("has %d characters", k.Got), fmt.Sprintf("give %d or fewer", k.Want))
	case *kind.MinItems:
		return one(fmt.Sprintf("has %d items", k.Got), fmt.Sprintf("give %d or more", k.Want))
	case *kind.MaxItems:
		return one(fmt.Sprintf("has %d items", k.Got), fmt.Sprintf("give %d or fewer", k.Want))
	case *kind.AnyOf, *kind.OneOf:
		return one("has none of the forms that the chart takes", "see the chart's values.schema.json")
	}
	return one("does not meet the chart's schema ("+strings.Join(k.KeywordPath(), "/")+")", "see the chart's values.schema.json")
}
