package api

import (
	"encoding/json"
	"io"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// schemaName names a type in the OpenAPI document. Types of two packages that
// share a name are told apart by the package.
func schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	switch pkg := t.PkgPath(); {
	case strings.HasSuffix(pkg, "/internal/audit"):
		return "Audit" + name
	case strings.HasSuffix(pkg, "/internal/cloud"):
		return "Cloud" + name
	}
	return name
}

func encode(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// schemaOf is the schema of a value's type, in the document's components.
func (s *server) schemaOf(v any) *huma.Schema {
	t := reflect.TypeOf(v)
	return s.api.OpenAPI().Components.Schemas.Schema(t, true, t.Name())
}
