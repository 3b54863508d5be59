package main

import (
	"slices"

	"cloud.google.com/go/memorystore/apiv1/memorystorepb"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// google.golang.org/api has no discovery document of Memorystore, whose client is generated from protocol buffers: its schemas are
// made of those, and its paths are those of the client. It has the paths of Memorystore for Redis, so in the simulation, where all
// services have one host, they are under a prefix.
const memorystoreBase = "/memorystore/"

// memorystore is the API of Memorystore v1 as far as it is simulated.
func memorystore() *outAPI {
	a := &outAPI{Name: "memorystore", Version: "v1", Base: memorystoreBase, Query: map[string]outParam{}, Methods: map[string]*outMethod{}, Schemas: map[string]*outType{}}
	for _, n := range []string{"alt", "prettyPrint", "key", "fields", "quotaUser"} {
		a.Query[n] = outParam{Type: "string"}
	}
	const location, instance = "^projects/[^/]+/locations/[^/]+$", "^projects/[^/]+/locations/[^/]+/instances/[^/]+$"
	add := func(id, http, path, flat, param, pattern string, query []string, request, response string) {
		m := &outMethod{HTTP: http, Path: path, Flat: flat, Request: request, Response: response, Params: map[string]outParam{param: {Path: true, Required: true, Type: "string", Pattern: pattern}}}
		for _, q := range query {
			m.Params[q] = outParam{Type: "string"}
		}
		a.Methods[id] = m
	}
	const one = "v1/projects/{projectsId}/locations/{locationsId}"
	page := []string{"pageSize", "pageToken", "filter", "orderBy"}
	add("projects.locations.list", "GET", "v1/{+name}/locations", "v1/projects/{projectsId}/locations", "name", "^projects/[^/]+$", page, "", "ListLocationsResponse")
	add("projects.locations.get", "GET", "v1/{+name}", one, "name", location, nil, "", "Location")
	add("projects.locations.instances.create", "POST", "v1/{+parent}/instances", one+"/instances", "parent", location, []string{"instanceId", "requestId"}, "Instance", "Operation")
	add("projects.locations.instances.list", "GET", "v1/{+parent}/instances", one+"/instances", "parent", location, page, "", "ListInstancesResponse")
	add("projects.locations.instances.get", "GET", "v1/{+name}", one+"/instances/{instancesId}", "name", instance, nil, "", "Instance")
	add("projects.locations.instances.patch", "PATCH", "v1/{+name}", one+"/instances/{instancesId}", "name", instance, []string{"updateMask", "requestId"}, "Instance", "Operation")
	add("projects.locations.instances.delete", "DELETE", "v1/{+name}", one+"/instances/{instancesId}", "name", instance, []string{"requestId"}, "", "Operation")
	add("projects.locations.instances.getCertificateAuthority", "GET", "v1/{+name}/certificateAuthority", one+"/instances/{instancesId}/certificateAuthority", "name", instance, nil, "", "CertificateAuthority")
	add("projects.locations.operations.get", "GET", "v1/{+name}", one+"/operations/{operationsId}", "name", "^projects/[^/]+/locations/[^/]+/operations/[^/]+$", nil, "", "Operation")
	for _, m := range []proto.Message{&memorystorepb.Instance{}, &memorystorepb.ListInstancesResponse{}, &memorystorepb.CertificateAuthority{}} {
		takeMessage(a, m.ProtoReflect().Descriptor())
	}
	// google.longrunning and google.cloud.location.
	free := &outType{Type: "object", Values: &outType{Type: "any"}}
	a.Schemas["Operation"] = &outType{Type: "object", Fields: map[string]*outType{"name": {Type: "string"}, "done": {Type: "boolean"}, "metadata": free, "response": free, "error": free}}
	a.Schemas["Location"] = &outType{Type: "object", Fields: map[string]*outType{"name": {Type: "string"}, "locationId": {Type: "string"}, "displayName": {Type: "string"}, "labels": free, "metadata": free}}
	a.Schemas["ListLocationsResponse"] = &outType{Type: "object", Fields: map[string]*outType{"locations": {Type: "array", Items: &outType{Ref: "Location"}}, "nextPageToken": {Type: "string"}}}
	return a
}

// takeMessage makes a schema of a message, and of all that it refers to.
func takeMessage(a *outAPI, d protoreflect.MessageDescriptor) string {
	name := string(d.Name())
	if a.Schemas[name] != nil {
		return name
	}
	t := &outType{Type: "object", Fields: map[string]*outType{}}
	a.Schemas[name] = t // so that a message that refers to itself ends here
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		ft := fieldType(a, f)
		behaviour, _ := proto.GetExtension(f.Options(), annotations.E_FieldBehavior).([]annotations.FieldBehavior)
		ft.ReadOnly = slices.Contains(behaviour, annotations.FieldBehavior_OUTPUT_ONLY)
		t.Fields[f.JSONName()] = ft
	}
	return name
}

func fieldType(a *outAPI, f protoreflect.FieldDescriptor) *outType {
	switch {
	case f.IsMap():
		return &outType{Type: "object", Values: valueType(a, f.MapValue())}
	case f.IsList():
		return &outType{Type: "array", Items: valueType(a, f)}
	}
	return valueType(a, f)
}

// valueType is how JSON has a value (the JSON mapping of protocol buffers).
func valueType(a *outAPI, f protoreflect.FieldDescriptor) *outType {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return &outType{Type: "boolean"}
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return &outType{Type: "integer", Format: "int32"}
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return &outType{Type: "integer", Format: "uint32"}
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return &outType{Type: "string", Format: "int64"}
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return &outType{Type: "string", Format: "uint64"}
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return &outType{Type: "number", Format: "double"}
	case protoreflect.EnumKind:
		t := &outType{Type: "string", Numbers: map[int32]string{}}
		for i := range f.Enum().Values().Len() {
			v := f.Enum().Values().Get(i)
			t.Enum = append(t.Enum, string(v.Name()))
			if t.Numbers[int32(v.Number())] == "" {
				t.Numbers[int32(v.Number())] = string(v.Name())
			}
		}
		slices.Sort(t.Enum)
		return t
	case protoreflect.MessageKind, protoreflect.GroupKind:
		switch f.Message().FullName() {
		case "google.protobuf.Timestamp":
			return &outType{Type: "string", Format: "google-datetime"}
		case "google.protobuf.Duration":
			return &outType{Type: "string", Format: "google-duration"}
		}
		return &outType{Ref: takeMessage(a, f.Message())}
	}
	return &outType{Type: "string"}
}
