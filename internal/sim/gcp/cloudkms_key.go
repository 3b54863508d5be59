package gcp

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// Limits on what a key may ask for ("Key rotation", "Destroy and restore key versions").
const (
	minRotation        = 24 * time.Hour
	maxRotation        = 100 * 365 * 24 * time.Hour
	defaultDestruction = 30 * 24 * time.Hour
	minDestruction     = 24 * time.Hour
	maxDestruction     = 120 * 24 * time.Hour
)

// algorithms are what keys are made with when nothing is said, by purpose. The others have no default.
var algorithms = map[string]string{"ENCRYPT_DECRYPT": "GOOGLE_SYMMETRIC_ENCRYPTION"}

// primary is the version that encrypts; only symmetric keys have one, of others the newest stands for the key.
func (k *cryptoKey) primary() *keyVersion {
	want := str(sub(k.Doc, "primary"), "name")
	for _, v := range k.Versions {
		if str(v.Doc, "name") == want {
			return v
		}
	}
	if want == "" && len(k.Versions) > 0 {
		return k.Versions[len(k.Versions)-1]
	}
	return nil
}

// shown is a key as GET answers it.
func (k *cryptoKey) shown() Doc {
	d := clone(k.Doc)
	if d["primary"] != nil {
		d["primary"] = clone(k.primary().Doc)
	}
	return d
}

func (v *keyVersion) setState(state string) { v.Doc["state"] = state }

func (s *cloudKMS) createKey(r *request) (any, error) {
	ring, err := s.ring(r, r.Path["parent"])
	if err != nil {
		return nil, err
	}
	id := r.Query.Get("cryptoKeyId")
	if !kmsID.MatchString(id) {
		return nil, kmsInvalid("The request has an invalid crypto_key_id: '%s'. It must match [a-zA-Z0-9_-]{1,63}.", id)
	}
	name := str(ring.Doc, "name") + "/cryptoKeys/" + id
	if s.st.Keys[name] != nil {
		return nil, refuse(409, "alreadyExists", "CryptoKey %s already exists.", name)
	}
	doc := clone(r.Body)
	if err := s.checkKey(doc); err != nil {
		return nil, err
	}
	template := subOf(doc, "versionTemplate")
	setDefault(template, "protectionLevel", "SOFTWARE")
	if setDefault(template, "algorithm", algorithms[str(doc, "purpose")]); str(template, "algorithm") == "" {
		return nil, kmsInvalid("CryptoKey.version_template.algorithm must be set for the purpose %s.", str(doc, "purpose"))
	}
	now := s.cloud.World.Now()
	doc["name"], doc["createTime"] = name, zuluTime(now)
	setDefault(doc, "destroyScheduledDuration", seconds(defaultDestruction))
	s.st.Seq++
	k := &cryptoKey{Doc: doc, Created: now, Seq: s.st.Seq}
	if r.Query.Get("skipInitialVersionCreation") != "true" {
		v := s.addVersion(k)
		if str(doc, "purpose") == "ENCRYPT_DECRYPT" {
			doc["primary"] = clone(v.Doc)
		}
	}
	s.st.Keys[name] = k
	r.Make(name)
	return k.shown(), nil
}

func seconds(d time.Duration) string { return strconv.FormatInt(int64(d/time.Second), 10) + "s" }

// checkKey checks what a create and a patch can set alike ("REST Resource: projects.locations.keyRings.cryptoKeys").
func (s *cloudKMS) checkKey(doc Doc) error {
	purpose := str(doc, "purpose")
	if purpose == "" || purpose == "CRYPTO_KEY_PURPOSE_UNSPECIFIED" {
		return kmsInvalid("CryptoKey.purpose must be set.")
	}
	period, next := str(doc, "rotationPeriod"), str(doc, "nextRotationTime")
	if period != "" {
		d, ok := duration(period)
		switch {
		case !ok || d < minRotation || d > maxRotation:
			return kmsInvalid("CryptoKey.rotation_period must be at least %s and at most %s.", seconds(minRotation), seconds(maxRotation))
		case purpose != "ENCRYPT_DECRYPT":
			return kmsInvalid("Automatic rotation is only supported for keys of the purpose ENCRYPT_DECRYPT.")
		case next == "":
			return kmsInvalid("CryptoKey.next_rotation_time must be set if CryptoKey.rotation_period is set.")
		}
	}
	if next != "" {
		at, err := time.Parse(time.RFC3339, next)
		if now := s.cloud.World.Now(); err != nil || at.Before(now) {
			return kmsInvalid("CryptoKey.next_rotation_time must be in the future.")
		}
	}
	if text := str(doc, "destroyScheduledDuration"); text != "" {
		if d, ok := duration(text); !ok || d < minDestruction || d > maxDestruction {
			return kmsInvalid("CryptoKey.destroy_scheduled_duration must be between %s and %s.", seconds(minDestruction), seconds(maxDestruction))
		}
	}
	return checkLabels(doc)
}

func (s *cloudKMS) key(r *request, name string) (*cryptoKey, error) {
	name = s.name(r, name)
	k := s.st.Keys[name]
	if k == nil || (!r.Mutating && !s.visible(r, name, k.Created)) {
		return nil, refuse(404, "notFound", "CryptoKey %s not found.", name)
	}
	r.Touch(name)
	return k, nil
}

func (s *cloudKMS) getKey(r *request) (any, error) {
	k, err := s.key(r, r.Path["name"])
	if err != nil {
		return nil, err
	}
	return k.shown(), nil
}

func (s *cloudKMS) listKeys(r *request) (any, error) {
	ring, err := s.ring(r, r.Path["parent"])
	if err != nil {
		return nil, err
	}
	var items []Doc
	for _, name := range keysOf(s.st.Keys) {
		if ringOf(name) == str(ring.Doc, "name") && s.visible(r, name, s.st.Keys[name].Created) {
			items = append(items, s.st.Keys[name].shown())
		}
	}
	return s.page(r, items, "cryptoKeys")
}

// patchable are the fields of a key that a patch can change, with the names that its mask has for them.
var patchable = map[string]string{"labels": "labels", "rotation_period": "rotationPeriod", "next_rotation_time": "nextRotationTime", "version_template": "versionTemplate",
	"version_template.algorithm": "versionTemplate", "key_access_justifications_policy": "keyAccessJustificationsPolicy"}

// patchKey changes what its mask names; what the mask names and the body leaves out is cleared.
func (s *cloudKMS) patchKey(r *request) (any, error) {
	k, err := s.key(r, r.Path["name"])
	if err != nil {
		return nil, err
	}
	mask := r.Query.Get("updateMask")
	if mask == "" {
		return nil, kmsInvalid("The request has an empty update_mask.")
	}
	doc := clone(k.Doc)
	for f := range strings.SplitSeq(mask, ",") {
		field := patchable[snake(strings.TrimSpace(f))]
		if field == "" {
			return nil, kmsInvalid("The field '%s' of a CryptoKey cannot be changed.", f)
		}
		takeOver(doc, r.Body, field)
	}
	if err := s.checkKey(doc); err != nil {
		return nil, err
	}
	k.Doc = doc
	return k.shown(), nil
}

func (s *cloudKMS) updatePrimary(r *request) (any, error) {
	k, err := s.key(r, r.Path["name"])
	if err != nil {
		return nil, err
	}
	if str(k.Doc, "purpose") != "ENCRYPT_DECRYPT" {
		return nil, kmsInvalid("Only keys of the purpose ENCRYPT_DECRYPT have a primary version.")
	}
	want := str(k.Doc, "name") + "/cryptoKeyVersions/" + str(r.Body, "cryptoKeyVersionId")
	for _, v := range k.Versions {
		if str(v.Doc, "name") == want {
			k.Doc["primary"] = clone(v.Doc)
			return k.shown(), nil
		}
	}
	return nil, refuse(404, "notFound", "CryptoKeyVersion %s not found.", want)
}

// Versions.

// addVersion makes the next version of a key.
func (s *cloudKMS) addVersion(k *cryptoKey) *keyVersion {
	now, template := zuluTime(s.cloud.World.Now()), sub(k.Doc, "versionTemplate")
	v := &keyVersion{Doc: Doc{"name": str(k.Doc, "name") + "/cryptoKeyVersions/" + strconv.Itoa(len(k.Versions)+1), "state": "ENABLED", "createTime": now, "generateTime": now,
		"protectionLevel": template["protectionLevel"], "algorithm": template["algorithm"]}}
	k.Versions = append(k.Versions, v)
	return v
}

func (s *cloudKMS) createVersion(r *request) (any, error) {
	k, err := s.key(r, r.Path["parent"])
	if err != nil {
		return nil, err
	}
	return s.addVersion(k).Doc, nil
}

func (s *cloudKMS) version(r *request) (*cryptoKey, *keyVersion, error) {
	name := s.name(r, r.Path["name"])
	of, _, _ := strings.Cut(name, "/cryptoKeyVersions/")
	k, err := s.key(r, of)
	if err != nil {
		return nil, nil, err
	}
	i := slices.IndexFunc(k.Versions, func(v *keyVersion) bool { return str(v.Doc, "name") == name })
	if i < 0 {
		return nil, nil, refuse(404, "notFound", "CryptoKeyVersion %s not found.", name)
	}
	return k, k.Versions[i], nil
}

func (s *cloudKMS) getVersion(r *request) (any, error) {
	_, v, err := s.version(r)
	if err != nil {
		return nil, err
	}
	return v.Doc, nil
}

func (s *cloudKMS) listVersions(r *request) (any, error) {
	k, err := s.key(r, r.Path["parent"])
	if err != nil {
		return nil, err
	}
	match, err := parseFilter(r.Query.Get("filter"))
	if err != nil {
		return nil, err
	}
	var items []Doc
	for _, v := range k.Versions {
		if match(v.Doc) {
			items = append(items, v.Doc)
		}
	}
	return s.page(r, items, "cryptoKeyVersions")
}

// patchVersion enables and disables a version.
func (s *cloudKMS) patchVersion(r *request) (any, error) {
	_, v, err := s.version(r)
	if err != nil {
		return nil, err
	}
	want, now := str(r.Body, "state"), str(v.Doc, "state")
	if r.Query.Get("updateMask") != "state" || !slices.Contains([]string{"ENABLED", "DISABLED"}, want) {
		return nil, kmsInvalid("Only the state of a CryptoKeyVersion can be changed, to ENABLED or DISABLED.")
	}
	if now != "ENABLED" && now != "DISABLED" {
		return nil, versionState(v, "ENABLED or DISABLED")
	}
	v.setState(want)
	return v.Doc, nil
}

// versionState is the refusal of what the version's state does not let be done.
func versionState(v *keyVersion, want string) *Error {
	return &Error{HTTP: 400, Reason: "failedPrecondition", Status: "FAILED_PRECONDITION",
		Message: str(v.Doc, "name") + " has state " + str(v.Doc, "state") + ", expected " + want + "."}
}

// destroyVersion schedules the destruction of a version; until then it can be restored.
func (s *cloudKMS) destroyVersion(r *request) (any, error) {
	k, v, err := s.version(r)
	if err != nil {
		return nil, err
	}
	if st := str(v.Doc, "state"); st != "ENABLED" && st != "DISABLED" {
		return nil, versionState(v, "ENABLED or DISABLED")
	}
	wait, _ := duration(str(k.Doc, "destroyScheduledDuration")) // checked when it was set
	v.Destroy = s.cloud.World.Now().Add(wait)
	v.setState("DESTROY_SCHEDULED")
	v.Doc["destroyTime"] = zuluTime(v.Destroy)
	s.cloud.after(wait, "cloudkms", "destroy", str(v.Doc, "name"))
	return v.Doc, nil
}

// restoreVersion brings a version back, disabled.
func (s *cloudKMS) restoreVersion(r *request) (any, error) {
	_, v, err := s.version(r)
	if err != nil {
		return nil, err
	}
	if str(v.Doc, "state") != "DESTROY_SCHEDULED" {
		return nil, versionState(v, "DESTROY_SCHEDULED")
	}
	v.setState("DISABLED")
	v.Destroy = time.Time{}
	delete(v.Doc, "destroyTime")
	return v.Doc, nil
}
