package gcp

import (
	"encoding/base64"
	"fmt"
	"hash/crc32"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// secretManager is the simulated Secret Manager: global and regional secrets with their versions. The real one has an endpoint for each
// region (secretmanager.LOCATION.rep.googleapis.com); here one endpoint serves all.
type secretManager struct {
	cloud *Cloud
	st    secretState
}

type secretState struct {
	Seq     int
	Secrets map[string]*secret // by name with the project's ID: projects/p/locations/l/secrets/s or projects/p/secrets/s
}

// A secret is a secret and its versions, the first one first.
type secret struct {
	Name     string
	Doc      Doc
	Created  time.Time
	Seq      int
	Versions []*secretVersion
}

// A secretVersion holds a payload until it is destroyed.
type secretVersion struct {
	Doc     Doc
	Payload []byte
}

func newSecretManager(c *Cloud) *secretManager {
	s := &secretManager{cloud: c}
	c.World.Register(s)
	ops := map[string]operation{}
	for _, where := range []string{"projects.secrets.", "projects.locations.secrets."} {
		for name, op := range map[string]operation{"create": s.create, "get": s.get, "list": s.list, "delete": s.delete, "patch": s.patch, "addVersion": s.addVersion,
			"versions.get": s.getVersion, "versions.list": s.listVersions, "versions.access": s.access, "versions.destroy": s.destroy,
			"versions.enable": s.setVersion("ENABLED"), "versions.disable": s.setVersion("DISABLED")} {
			ops[where+name] = op
		}
	}
	c.add("secretmanager/v1", &api{service: "secretmanager", denied: secretDenied, ops: ops})
	return s
}

// secretDenied names the permission that is missing ("Access control with IAM", Secret Manager).
func secretDenied(r *request, _ string) *Error {
	parts := strings.Split(r.method.ID, ".")
	verb := parts[len(parts)-1]
	kind := "secrets"
	if slices.Contains(parts, "versions") || verb == "addVersion" {
		kind = "versions"
	}
	return refuse(403, "forbidden", "Permission 'secretmanager.%s.%s' denied for resource '%s' (or it may not exist).", kind, strings.TrimSuffix(verb, "Version"), r.Path["name"]+r.Path["parent"])
}

func (s *secretManager) Cloud() string { return cloudName }
func (s *secretManager) Name() string  { return "secretmanager" }
func (s *secretManager) State() any    { return &s.st }

// Reset starts afresh.
func (s *secretManager) Reset() { s.st = secretState{Secrets: map[string]*secret{}} }

// Event removes a secret that has expired.
func (s *secretManager) Event(kind, key string) {
	sec := s.st.Secrets[key]
	if kind != "expire" || sec == nil {
		return
	}
	if at, err := time.Parse(time.RFC3339, str(sec.Doc, "expireTime")); err == nil && !s.cloud.World.Now().Before(at) {
		delete(s.st.Secrets, key)
	}
}

// Objects lists the secrets.
func (s *secretManager) Objects() []sim.Object {
	var out []sim.Object
	for _, sec := range s.inOrder("") {
		out = append(out, sim.Object{Account: segmentAfter(sec.Name, "projects"), Region: segmentAfter(sec.Name, "locations"), Kind: "secret", ID: sec.Name, Name: lastPart(sec.Name),
			Tags: labelsOf(sec.Doc), Data: &sec.Doc})
	}
	return out
}

// SetState drives the newest version of a secret.
func (s *secretManager) SetState(id, state, _, _ string) error {
	sec := s.st.Secrets[id]
	if sec == nil || len(sec.Versions) == 0 {
		return fmt.Errorf("%s has no states; secrets with versions have", id)
	}
	if !slices.Contains([]string{"ENABLED", "DISABLED", "DESTROYED"}, state) {
		return fmt.Errorf("a version is ENABLED, DISABLED or DESTROYED, not %q", state)
	}
	sec.Versions[len(sec.Versions)-1].Doc["state"] = state
	return nil
}

// Remove takes a secret away.
func (s *secretManager) Remove(id string) error {
	if s.st.Secrets[id] == nil {
		return fmt.Errorf("no object %s", id)
	}
	delete(s.st.Secrets, id)
	return nil
}

func (s *secretManager) inOrder(prefix string) []*secret {
	var out []*secret
	for _, name := range keysOf(s.st.Secrets) {
		if strings.HasPrefix(name, prefix) {
			out = append(out, s.st.Secrets[name])
		}
	}
	slices.SortStableFunc(out, func(a, b *secret) int { return a.Seq - b.Seq })
	return out
}

// byID is a name with the project's ID, byNumber with its number, which answers have.
func (s *secretManager) byID(r *request, name string) string {
	return "projects/" + r.Project.ID + strings.TrimPrefix(name, "projects/"+segmentAfter(name, "projects"))
}

func (s *secretManager) byNumber(name string) string {
	id := segmentAfter(name, "projects")
	return "projects/" + s.cloud.number(id) + strings.TrimPrefix(name, "projects/"+id)
}

var secretID = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,255}$`)

func (s *secretManager) create(r *request) (any, error) {
	id := r.Query.Get("secretId")
	name := s.byID(r, r.Path["parent"]) + "/secrets/" + id
	location := segmentAfter(name, "locations")
	switch {
	case !secretID.MatchString(id):
		return nil, refuse(400, "badRequest", "The provided Secret ID [%s] does not match the expected format [[a-zA-Z_0-9]+].", id)
	case location != "" && !regionExists(location):
		return nil, refuse(400, "badRequest", "Location '%s' is not supported by Secret Manager.", location)
	case location == "" && sub(r.Body, "replication") == nil:
		return nil, refuse(400, "badRequest", "The secret's replication policy must be set.")
	case location != "" && sub(r.Body, "replication") != nil:
		return nil, refuse(400, "badRequest", "Replication must not be set for regional secrets.")
	case s.st.Secrets[name] != nil:
		return nil, refuse(409, "alreadyExists", "Secret [%s] already exists.", s.byNumber(name))
	}
	if err := checkSecretLabels(r.Body); err != nil {
		return nil, err
	}
	s.st.Seq++
	now := s.cloud.World.Now()
	sec := &secret{Name: name, Doc: clone(r.Body), Created: now, Seq: s.st.Seq}
	sec.Doc["name"], sec.Doc["createTime"] = s.byNumber(name), zuluTime(now)
	if ttl, ok := duration(str(sec.Doc, "ttl")); ok {
		sec.Doc["expireTime"] = zuluTime(now.Add(ttl))
		s.cloud.after(ttl, "secretmanager", "expire", name)
	}
	delete(sec.Doc, "ttl")
	sec.touch()
	s.st.Secrets[name] = sec
	r.Make(name)
	return sec.Doc, nil
}

// checkSecretLabels refuses labels that are none ("Labels requirements").
func checkSecretLabels(d Doc) error {
	labels := labelsOf(d)
	if len(labels) > 64 {
		return refuse(400, "badRequest", "A secret has 64 labels at most.")
	}
	for k, v := range labels {
		if !labelKey.MatchString(k) || !labelValue.MatchString(v) {
			return refuse(400, "badRequest", "Invalid label [%s=%s].", k, v)
		}
	}
	return nil
}

// touch gives a secret another etag.
func (sec *secret) touch() {
	delete(sec.Doc, "etag")
	sec.Doc["etag"] = `"` + fingerprint(Doc{"doc": sec.Doc, "versions": len(sec.Versions)}) + `"`
}

func (s *secretManager) find(r *request, name string) (*secret, error) {
	name, _, _ = strings.Cut(name, "/versions")
	id := s.byID(r, name)
	sec := s.st.Secrets[id]
	if sec == nil || (!r.Mutating && r.HTTP != nil && !s.cloud.World.Visible(r.Call, id, sec.Created.Add(-24*time.Hour), sim.ByID, "secret "+lastPart(id))) {
		return nil, refuse(404, "notFound", "Secret [%s] not found.", s.byNumber(id))
	}
	r.Touch(id)
	return sec, nil
}

func (s *secretManager) get(r *request) (any, error) {
	sec, err := s.find(r, r.Path["name"])
	if err != nil {
		return nil, err
	}
	return sec.Doc, nil
}

func (s *secretManager) list(r *request) (any, error) {
	f, err := parseFilter(r.Query.Get("filter"))
	if err != nil {
		return nil, refuse(400, "badRequest", "Invalid filter.")
	}
	var items []Doc
	for _, sec := range s.inOrder(s.byID(r, r.Path["parent"]) + "/secrets/") {
		if f(sec.Doc) && (r.HTTP == nil || s.cloud.World.Visible(r.Call, sec.Name, sec.Created, sim.ByList, "secret "+lastPart(sec.Name))) {
			items = append(items, sec.Doc)
		}
	}
	out, err := r.page(items, "secrets", 25000)
	if d, ok := out.(map[string]any); ok && len(items) > 0 {
		d["totalSize"] = len(items)
	}
	return out, err
}

// etagFits refuses a change that was meant for another state of the secret ("Use ETags", Secret Manager).
func (sec *secret) etagFits(etag string) error {
	if etag != "" && etag != str(sec.Doc, "etag") {
		return &Error{HTTP: 400, Reason: "failedPrecondition", Status: "FAILED_PRECONDITION", Message: "The provided etag [" + etag + "] does not match the current one."}
	}
	return nil
}

func (s *secretManager) delete(r *request) (any, error) {
	sec, err := s.find(r, r.Path["name"])
	if err != nil {
		return nil, err
	}
	if err := sec.etagFits(r.Query.Get("etag")); err != nil {
		return nil, err
	}
	delete(s.st.Secrets, sec.Name)
	return Doc{}, nil
}

// patch changes the fields that the mask names.
func (s *secretManager) patch(r *request) (any, error) {
	sec, err := s.find(r, r.Path["name"])
	if err != nil {
		return nil, err
	}
	if err := sec.etagFits(str(r.Body, "etag")); err != nil {
		return nil, err
	}
	mask := r.Query.Get("updateMask")
	if mask == "" {
		return nil, refuse(400, "badRequest", "The update mask must not be empty.")
	}
	for field := range strings.SplitSeq(mask, ",") {
		field = camel(field)
		if slices.Contains([]string{"name", "replication", "createTime"}, field) {
			return nil, refuse(400, "badRequest", "Field [%s] cannot be changed.", field)
		}
		if v, ok := r.Body[field]; ok && v != nil {
			sec.Doc[field] = v
		} else {
			delete(sec.Doc, field)
		}
	}
	if err := checkSecretLabels(sec.Doc); err != nil {
		return nil, err
	}
	sec.touch()
	return sec.Doc, nil
}

// camel is a name of a mask as JSON has it: version_aliases is versionAliases.
func camel(s string) string {
	parts := strings.Split(s, "_")
	for i := 1; i < len(parts); i++ {
		if parts[i] != "" {
			parts[i] = strings.ToUpper(parts[i][:1]) + parts[i][1:]
		}
	}
	return strings.Join(parts, "")
}

// addVersion adds a version with a payload of 64 KiB at most ("Quotas and limits", Secret Manager).
func (s *secretManager) addVersion(r *request) (any, error) {
	sec, err := s.find(r, r.Path["parent"])
	if err != nil {
		return nil, err
	}
	payload := sub(r.Body, "payload")
	data, err := base64.StdEncoding.DecodeString(str(payload, "data"))
	switch {
	case err != nil:
		return nil, refuse(400, "badRequest", "The payload is no base64.")
	case len(data) > 64<<10:
		return nil, refuse(400, "badRequest", "The payload is larger than 65536 bytes.")
	}
	sum := strconv.FormatUint(uint64(crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli))), 10)
	if given := str(payload, "dataCrc32c"); given != "" && given != sum {
		return nil, refuse(400, "badRequest", "The checksum of the payload does not match.")
	}
	name := sec.Name + "/versions/" + strconv.Itoa(len(sec.Versions)+1)
	v := &secretVersion{Payload: data, Doc: Doc{"name": s.byNumber(name), "createTime": zuluTime(s.cloud.World.Now()), "state": "ENABLED",
		"clientSpecifiedPayloadChecksum": str(payload, "dataCrc32c") != "", "etag": `"` + fingerprint(Doc{"name": name}) + `"`}}
	if segmentAfter(name, "locations") == "" {
		v.Doc["replicationStatus"] = Doc{"automatic": Doc{}}
	}
	sec.Versions = append(sec.Versions, v)
	sec.touch()
	r.Make(name)
	return v.Doc, nil
}
