package gcp

import (
	"encoding/base64"
	"hash/crc32"
	"slices"
	"strconv"

	"github.com/zopday/provisioner/internal/sim"
)

// version finds a version: by its number, an alias, or the newest one.
func (s *secretManager) version(r *request, name string) (*secretVersion, error) {
	sec, err := s.find(r, name)
	if err != nil {
		return nil, err
	}
	which := lastPart(name)
	if alias := text(sub(sec.Doc, "versionAliases")[which]); sub(sec.Doc, "versionAliases")[which] != nil {
		which = alias
	}
	n := len(sec.Versions)
	if which != "latest" {
		n, _ = strconv.Atoi(which)
	}
	if n < 1 || n > len(sec.Versions) {
		return nil, refuse(404, "notFound", "Secret Version [%s] not found.", s.byNumber(s.byID(r, name)))
	}
	return sec.Versions[n-1], nil
}

func (s *secretManager) getVersion(r *request) (any, error) {
	v, err := s.version(r, r.Path["name"])
	if err != nil {
		return nil, err
	}
	return v.Doc, nil
}

func (s *secretManager) listVersions(r *request) (any, error) {
	sec, err := s.find(r, r.Path["parent"])
	if err != nil {
		return nil, err
	}
	var items []Doc
	for _, v := range slices.Backward(sec.Versions) {
		items = append(items, v.Doc)
	}
	out, err := r.page(items, "versions", 25000)
	if d, ok := out.(map[string]any); ok && len(items) > 0 {
		d["totalSize"] = len(items)
	}
	return out, err
}

// payload is what a version holds, for another service on behalf of its caller.
func (s *secretManager) payload(r *request, name string) ([]byte, error) {
	p, ok := s.cloud.project(segmentAfter(name, "projects"))
	if !ok || !r.Who.may(p.ID) {
		return nil, refuse(403, "forbidden", "Permission 'secretmanager.versions.access' denied for resource '%s' (or it may not exist).", name)
	}
	other := *r
	other.Project, other.Call = p, &sim.Call{Cloud: cloudName, Service: "secretmanager", Operation: "projects.locations.secrets.versions.access", Account: p.ID}
	v, err := s.version(&other, name)
	if err != nil {
		return nil, err
	}
	return v.Payload, v.usable()
}

// usable refuses a version that is not enabled.
func (v *secretVersion) usable() error {
	if st := str(v.Doc, "state"); st != "ENABLED" {
		return &Error{HTTP: 400, Reason: "failedPrecondition", Status: "FAILED_PRECONDITION", Message: "Secret Version [" + str(v.Doc, "name") + "] is in " + st + " state."}
	}
	return nil
}

func (s *secretManager) access(r *request) (any, error) {
	v, err := s.version(r, r.Path["name"])
	if err != nil {
		return nil, err
	}
	if err := v.usable(); err != nil {
		return nil, err
	}
	sum := crc32.Checksum(v.Payload, crc32.MakeTable(crc32.Castagnoli))
	return Doc{"name": str(v.Doc, "name"), "payload": Doc{"data": base64.StdEncoding.EncodeToString(v.Payload), "dataCrc32c": strconv.FormatUint(uint64(sum), 10)}}, nil
}

func (s *secretManager) destroy(r *request) (any, error) {
	v, err := s.version(r, r.Path["name"])
	if err != nil {
		return nil, err
	}
	if str(v.Doc, "state") == "DESTROYED" {
		return nil, v.usable()
	}
	v.Payload = nil
	v.Doc["state"], v.Doc["destroyTime"] = "DESTROYED", zuluTime(s.cloud.World.Now())
	return v.Doc, nil
}

// setVersion enables or disables a version.
func (s *secretManager) setVersion(state string) operation {
	return func(r *request) (any, error) {
		v, err := s.version(r, r.Path["name"])
		if err != nil {
			return nil, err
		}
		if str(v.Doc, "state") == "DESTROYED" {
			return nil, v.usable()
		}
		v.Doc["state"] = state
		return v.Doc, nil
	}
}
