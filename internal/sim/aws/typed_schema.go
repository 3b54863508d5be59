package aws

import (
	"encoding/base64"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/aws/smithy-go"
	smithydocument "github.com/aws/smithy-go/document"
	"github.com/aws/smithy-go/traits"
)

// RDS and ElastiCache name the items of their lists after what they are (DBInstance, CacheNode), as their models say. The
// SDK's types know the model and write themselves to a serializer: this one writes the XML of the query protocol ("AWS
// query protocol", Smithy documentation).

// encodeSchema renders an SDK output as the inner elements of an answer. An absent member is left out, an empty list is an
// empty element.
func encodeSchema(out any) ([]byte, error) {
	s := &schemaXML{}
	if o, ok := out.(smithy.Serializable); ok {
		o.Serialize(s)
	}
	return s.Bytes(), nil
}

type schemaXML struct {
	b    strings.Builder
	open []string // names of the elements that are open
}

var _ smithy.ShapeSerializer = (*schemaXML)(nil)

// Bytes implements smithy.ShapeSerializer.
func (s *schemaXML) Bytes() []byte { return []byte(s.b.String()) }

func elementName(schema *smithy.Schema) string {
	if t, ok := smithy.SchemaDirectTrait[*traits.XMLName](schema); ok {
		return t.Name
	}
	return schema.MemberName()
}

// begin opens an element; the outermost shape has none of its own.
func (s *schemaXML) begin(name string) {
	s.open = append(s.open, name)
	if name != "" {
		s.b.WriteString("<" + name + ">")
	}
}

func (s *schemaXML) end() {
	last := len(s.open) - 1
	if name := s.open[last]; name != "" {
		s.b.WriteString("</" + name + ">")
	}
	s.open = s.open[:last]
}

func (s *schemaXML) text(schema *smithy.Schema, v string) { writeXMLText(&s.b, elementName(schema), v) }

func (s *schemaXML) number(schema *smithy.Schema, v int64) {
	s.text(schema, strconv.FormatInt(v, 10))
}

// WriteInt8 implements smithy.ShapeSerializer.
func (s *schemaXML) WriteInt8(schema *smithy.Schema, v int8) { s.number(schema, int64(v)) }

// WriteInt16 implements smithy.ShapeSerializer.
func (s *schemaXML) WriteInt16(schema *smithy.Schema, v int16) { s.number(schema, int64(v)) }

// WriteInt32 implements smithy.ShapeSerializer.
func (s *schemaXML) WriteInt32(schema *smithy.Schema, v int32) { s.number(schema, int64(v)) }

// WriteInt64 implements smithy.ShapeSerializer.
func (s *schemaXML) WriteInt64(schema *smithy.Schema, v int64) { s.number(schema, v) }

// WriteFloat32 implements smithy.ShapeSerializer.
func (s *schemaXML) WriteFloat32(schema *smithy.Schema, v float32) {
	s.WriteFloat64(schema, float64(v))
}

// WriteFloat64 implements smithy.ShapeSerializer.
func (s *schemaXML) WriteFloat64(schema *smithy.Schema, v float64) {
	s.text(schema, strconv.FormatFloat(v, 'f', -1, 64))
}

// WriteBool implements smithy.ShapeSerializer.
func (s *schemaXML) WriteBool(schema *smithy.Schema, v bool) { s.text(schema, strconv.FormatBool(v)) }

// WriteString implements smithy.ShapeSerializer.
func (s *schemaXML) WriteString(schema *smithy.Schema, v string) { s.text(schema, v) }

// WriteBigInt implements smithy.ShapeSerializer.
func (s *schemaXML) WriteBigInt(schema *smithy.Schema, v *big.Int) { s.text(schema, v.String()) }

// WriteBigFloat implements smithy.ShapeSerializer.
func (s *schemaXML) WriteBigFloat(schema *smithy.Schema, v *big.Float) { s.text(schema, v.String()) }

// WriteBlob implements smithy.ShapeSerializer.
func (s *schemaXML) WriteBlob(schema *smithy.Schema, v []byte) {
	s.text(schema, base64.StdEncoding.EncodeToString(v))
}

// WriteTime implements smithy.ShapeSerializer.
func (s *schemaXML) WriteTime(schema *smithy.Schema, v time.Time) { s.text(schema, stamp(v)) }

// WriteUnion implements smithy.ShapeSerializer.
func (s *schemaXML) WriteUnion(schema, _ *smithy.Schema) { s.begin(elementName(schema)) }

// CloseUnion implements smithy.ShapeSerializer.
func (s *schemaXML) CloseUnion() { s.end() }

// WriteDocument implements smithy.ShapeSerializer: the query protocol has no documents.
func (s *schemaXML) WriteDocument(*smithy.Schema, smithydocument.Value) {}

// WriteNil implements smithy.ShapeSerializer.
func (s *schemaXML) WriteNil(*smithy.Schema) {}

// WriteStruct implements smithy.ShapeSerializer.
func (s *schemaXML) WriteStruct(schema *smithy.Schema) {
	if len(s.open) == 0 {
		s.begin("")
		return
	}
	s.begin(elementName(schema))
}

// CloseStruct implements smithy.ShapeSerializer.
func (s *schemaXML) CloseStruct() { s.end() }

// WriteList implements smithy.ShapeSerializer.
func (s *schemaXML) WriteList(schema *smithy.Schema) { s.begin(elementName(schema)) }

// CloseList implements smithy.ShapeSerializer.
func (s *schemaXML) CloseList() { s.end() }

// WriteMap implements smithy.ShapeSerializer: no answer of these services has a map.
func (s *schemaXML) WriteMap(schema *smithy.Schema) { s.begin(elementName(schema)) }

// WriteKey implements smithy.ShapeSerializer.
func (s *schemaXML) WriteKey(*smithy.Schema, string) {}

// CloseMap implements smithy.ShapeSerializer.
func (s *schemaXML) CloseMap() { s.end() }
