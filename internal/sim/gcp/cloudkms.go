package gcp

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// cloudKMS is the simulated Cloud Key Management Service: key rings, keys and their versions. Nothing encrypts with them; what
// other services need to know is whether a key is usable and for whom.
type cloudKMS struct {
	cloud *Cloud
	st    kmsState
}

type kmsState struct {
	Seq   int
	Rings map[string]*keyRing   // by name: projects/p/locations/l/keyRings/r
	Keys  map[string]*cryptoKey // by name: …/cryptoKeys/k
}

// A keyRing holds keys. It cannot be deleted, so that its name is taken for ever ("Cloud KMS resources": key rings).
type keyRing struct {
	Doc     Doc
	Created time.Time
	Seq     int
	Grants  grants
}

// A cryptoKey is a key with its versions, the first one first.
type cryptoKey struct {
	Doc      Doc
	Created  time.Time
	Seq      int
	Versions []*keyVersion
	Grants   grants
}

// A keyVersion is the material of a key.
type keyVersion struct {
	Doc Doc
	// Destroy is when the material is destroyed for good.
	Destroy time.Time
}

// grants are the allow policy of an object, and since when each member has each of its roles.
type grants struct {
	Policy *policy
	Since  map[string]time.Time // by role and member
}

// forget takes what a deleted service account had.
func (g grants) forget(a ServiceAccount) {
	g.Policy.accountGone(a)
	for key := range g.Since {
		if strings.HasSuffix(key, " serviceAccount:"+a.Email) {
			delete(g.Since, key)
		}
	}
}

func newCloudKMS(c *Cloud) *cloudKMS {
	s := &cloudKMS{cloud: c}
	c.World.Register(s)
	c.hooks.accountGone = append(c.hooks.accountGone, s.accountGone)
	const ring, key, version = "projects.locations.keyRings.", "projects.locations.keyRings.cryptoKeys.", "projects.locations.keyRings.cryptoKeys.cryptoKeyVersions."
	c.add("cloudkms/v1", &api{service: "cloudkms", denied: kmsDenied, ops: map[string]operation{
		ring + "create": s.createRing, ring + "get": s.getRing, ring + "list": s.listRings, ring + "getIamPolicy": s.getPolicy, ring + "setIamPolicy": s.setPolicy,
		ring + "testIamPermissions": testPermissions,
		key + "create":              s.createKey, key + "get": s.getKey, key + "list": s.listKeys, key + "patch": s.patchKey, key + "getIamPolicy": s.getPolicy,
		key + "setIamPolicy": s.setPolicy, key + "testIamPermissions": testPermissions, key + "updatePrimaryVersion": s.updatePrimary,
		version + "create": s.createVersion, version + "get": s.getVersion, version + "list": s.listVersions, version + "patch": s.patchVersion,
		version + "destroy": s.destroyVersion, version + "restore": s.restoreVersion,
	}})
	return s
}

// kmsDenied names the permission that is missing ("Permissions and roles", Cloud KMS).
func kmsDenied(r *request, _ string) *Error {
	parts := strings.Split(r.method.ID, ".")
	return refuse(403, "forbidden", "Permission 'cloudkms.%s' denied on resource '%s' (or it may not exist).", strings.Join(parts[len(parts)-2:], "."),
		r.Path["name"]+r.Path["parent"]+r.Path["resource"])
}

func (s *cloudKMS) Cloud() string { return cloudName }
func (s *cloudKMS) Name() string  { return "cloudkms" }
func (s *cloudKMS) State() any    { return &s.st }

// Reset starts afresh.
func (s *cloudKMS) Reset() {
	s.st = kmsState{Rings: map[string]*keyRing{}, Keys: map[string]*cryptoKey{}}
}

// Event destroys the material of a version whose time has come.
func (s *cloudKMS) Event(kind, key string) {
	name, _, _ := strings.Cut(key, "/cryptoKeyVersions/")
	k := s.st.Keys[name]
	if k == nil || kind != "destroy" {
		return
	}
	for _, v := range k.Versions {
		if str(v.Doc, "name") == key && str(v.Doc, "state") == "DESTROY_SCHEDULED" && !s.cloud.World.Now().Before(v.Destroy) {
			v.setState("DESTROYED")
			v.Doc["destroyEventTime"] = zuluTime(s.cloud.World.Now())
		}
	}
}

// alive says whether a key still has material.
func (k *cryptoKey) alive() bool {
	return slices.ContainsFunc(k.Versions, func(v *keyVersion) bool {
		st := str(v.Doc, "state")
		return st != "DESTROYED" && st != "DESTROY_SCHEDULED"
	})
}

// Objects lists key rings and keys. What has no material any more cannot be removed further, and counts as gone.
func (s *cloudKMS) Objects() []sim.Object {
	var out []sim.Object
	full := map[string]bool{}
	for _, name := range keysOf(s.st.Keys) {
		k := s.st.Keys[name]
		full[ringOf(name)] = full[ringOf(name)] || k.alive()
		state := "ENABLED"
		if p := k.primary(); p != nil {
			state = str(p.Doc, "state")
		}
		out = append(out, sim.Object{Account: segmentAfter(name, "projects"), Region: segmentAfter(name, "locations"), Kind: "crypto-key", ID: name, Name: lastPart(name), State: state,
			Tags: labelsOf(k.Doc), Parents: []string{ringOf(name)}, Gone: !k.alive(), Data: &k.Doc})
	}
	for _, name := range keysOf(s.st.Rings) {
		out = append(out, sim.Object{Account: segmentAfter(name, "projects"), Region: segmentAfter(name, "locations"), Kind: "key-ring", ID: name, Name: lastPart(name),
			Gone: !full[name], Data: &s.st.Rings[name].Doc})
	}
	return out
}

func ringOf(name string) string {
	ring, _, _ := strings.Cut(name, "/cryptoKeys/")
	return ring
}

// SetState drives the primary version of a key.
func (s *cloudKMS) SetState(id, state, _, _ string) error {
	k := s.st.Keys[id]
	if k == nil {
		return fmt.Errorf("%s has no states; keys have", id)
	}
	v := k.primary()
	if v == nil || !slices.Contains([]string{"ENABLED", "DISABLED", "DESTROY_SCHEDULED", "DESTROYED"}, state) {
		return fmt.Errorf("a key is ENABLED, DISABLED, DESTROY_SCHEDULED or DESTROYED, not %q", state)
	}
	v.setState(state)
	return nil
}

// Remove takes a key, or a ring with all its keys, away.
func (s *cloudKMS) Remove(id string) error {
	if s.st.Keys[id] == nil && s.st.Rings[id] == nil {
		return fmt.Errorf("no object %s", id)
	}
	delete(s.st.Rings, id)
	for name := range s.st.Keys {
		if name == id || ringOf(name) == id {
			delete(s.st.Keys, name)
		}
	}
	return nil
}

// kmsID is what names of key rings and keys are made of ("Resource IDs", Cloud KMS).
var kmsID = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,63}$`)

// multiRegions are the places of Cloud KMS that are no regions ("Cloud KMS locations").
var multiRegions = []string{"global", "us", "europe", "eur4", "eur5", "eur6", "asia1", "nam4", "nam6"}

func (s *cloudKMS) createRing(r *request) (any, error) {
	id := r.Query.Get("keyRingId")
	location := segmentAfter(r.Path["parent"], "locations")
	switch {
	case !regionExists(location) && !slices.Contains(multiRegions, location):
		return nil, kmsInvalid("The request concerns location '%s' but was sent to location 'global'. Location '%[1]s' is not supported by Cloud KMS.", location)
	case !kmsID.MatchString(id):
		return nil, kmsInvalid("The request has an invalid key_ring_id: '%s'. It must match [a-zA-Z0-9_-]{1,63}.", id)
	}
	name := s.name(r, r.Path["parent"]) + "/keyRings/" + id
	if s.st.Rings[name] != nil {
		return nil, refuse(409, "alreadyExists", "KeyRing %s already exists.", name)
	}
	s.st.Seq++
	now := s.cloud.World.Now()
	ring := &keyRing{Doc: Doc{"name": name, "createTime": zuluTime(now)}, Created: now, Seq: s.st.Seq}
	s.st.Rings[name] = ring
	r.Make(name)
	return ring.Doc, nil
}

func kmsInvalid(format string, args ...any) *Error {
	return refuse(400, "badRequest", format, args...)
}

// name is a name with the project's ID in it.
func (s *cloudKMS) name(r *request, name string) string {
	given := segmentAfter(name, "projects")
	return "projects/" + r.Project.ID + strings.TrimPrefix(name, "projects/"+given)
}

func (s *cloudKMS) ring(r *request, name string) (*keyRing, error) {
	name = s.name(r, name)
	ring := s.st.Rings[name]
	if ring == nil || (!r.Mutating && !s.visible(r, name, ring.Created)) {
		return nil, refuse(404, "notFound", "KeyRing %s not found.", name)
	}
	r.Touch(name)
	return ring, nil
}

// visible is for the fault hidden alone: reads of Cloud KMS are consistent ("Cloud KMS resource consistency").
func (s *cloudKMS) visible(r *request, name string, created time.Time) bool {
	return r.HTTP == nil || s.cloud.World.Visible(r.Call, name, created.Add(-24*time.Hour), sim.ByID, name)
}

func (s *cloudKMS) getRing(r *request) (any, error) {
	ring, err := s.ring(r, r.Path["name"])
	if err != nil {
		return nil, err
	}
	return ring.Doc, nil
}

func (s *cloudKMS) listRings(r *request) (any, error) {
	var items []Doc
	prefix := s.name(r, r.Path["parent"]) + "/keyRings/"
	for _, name := range keysOf(s.st.Rings) {
		if strings.HasPrefix(name, prefix) && s.visible(r, name, s.st.Rings[name].Created) {
			items = append(items, s.st.Rings[name].Doc)
		}
	}
	return s.page(r, items, "keyRings")
}

// page is one page of a list, with the number of all.
func (s *cloudKMS) page(r *request, items []Doc, field string) (any, error) {
	out, err := r.page(items, field, 100)
	if d, ok := out.(map[string]any); ok && len(items) > 0 {
		d["totalSize"] = len(items)
	}
	return out, err
}

// The policies of key rings and keys.

func (s *cloudKMS) grantsOf(r *request) (*grants, error) {
	name := s.name(r, r.Path["resource"])
	if strings.Contains(name, "/cryptoKeys/") {
		k, err := s.key(r, name)
		if err != nil {
			return nil, err
		}
		return &k.Grants, nil
	}
	ring, err := s.ring(r, name)
	if err != nil {
		return nil, err
	}
	return &ring.Grants, nil
}

func (s *cloudKMS) getPolicy(r *request) (any, error) {
	g, err := s.grantsOf(r)
	if err != nil {
		return nil, err
	}
	return g.Policy.shown(), nil
}

func (s *cloudKMS) setPolicy(r *request) (any, error) {
	g, err := s.grantsOf(r)
	if err != nil {
		return nil, err
	}
	next, err := s.cloud.changePolicy(r, g.Policy)
	if err != nil {
		return nil, err
	}
	since := map[string]time.Time{}
	for _, b := range docs(next.Doc, "bindings") {
		for _, member := range texts(b, "members") {
			key := str(b, "role") + " " + member
			if since[key] = s.cloud.World.Now(); !g.Since[key].IsZero() {
				since[key] = g.Since[key]
			}
		}
	}
	g.Policy, g.Since = next, since
	return next.shown(), nil
}

// accountGone renames a deleted service account in the policies, as Resource Manager does.
func (s *cloudKMS) accountGone(a ServiceAccount) {
	for _, ring := range s.st.Rings {
		ring.Grants.forget(a)
	}
	for _, k := range s.st.Keys {
		k.Grants.forget(a)
	}
}

// kmsCall is what a fault of kind hidden on the effect of a grant is matched with.
func (s *cloudKMS) kmsCall(project string) *sim.Call {
	return &sim.Call{Cloud: cloudName, Service: "cloudkms", Operation: "ResolveGrant", Account: project}
}

// holds says whether a member has a role on an object by its own policy. A fresh grant has no effect for a while ("Access change
// propagation", IAM).
func (s *cloudKMS) holds(g grants, object, member string, roles []string) bool {
	for _, role := range roles {
		since, ok := g.Since[role+" "+member]
		if ok && s.cloud.World.Visible(s.kmsCall(segmentAfter(object, "projects")), object+" "+role+" "+member, since, sim.ByList, "grant "+member) {
			return true
		}
	}
	return false
}

// encrypters are the roles that let their holder encrypt with a key.
var encrypters = []string{"roles/cloudkms.cryptoKeyEncrypterDecrypter", "roles/cloudkms.cryptoKeyEncrypter", "roles/cloudkms.cryptoOperator"}

// mayEncrypt says whether a member may encrypt and decrypt with a key: by a grant on the key, its ring or the project.
func (s *cloudKMS) mayEncrypt(name, member string) bool {
	k, ring := s.st.Keys[name], s.st.Rings[ringOf(name)]
	if k != nil && s.holds(k.Grants, name, member, encrypters) || ring != nil && s.holds(ring.Grants, ringOf(name), member, encrypters) {
		return true
	}
	return slices.ContainsFunc(s.cloud.rolesOf(segmentAfter(name, "projects"), member), func(role string) bool { return slices.Contains(encrypters, role) })
}

// usable is the state of a key for those who would encrypt with it: empty if there is no such key.
func (s *cloudKMS) usable(name string) (state, purpose string) {
	k := s.st.Keys[name]
	if k == nil {
		return "", ""
	}
	v := k.primary()
	if v == nil {
		return "PENDING_GENERATION", str(k.Doc, "purpose")
	}
	return str(v.Doc, "state"), str(k.Doc, "purpose")
}

// duration reads a duration as JSON has it: seconds with an s.
func duration(text string) (time.Duration, bool) {
	n, err := strconv.ParseFloat(strings.TrimSuffix(text, "s"), 64)
	return time.Duration(n * float64(time.Second)), err == nil && strings.HasSuffix(text, "s")
}
