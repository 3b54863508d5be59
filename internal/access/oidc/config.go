package oidc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/zopday/provisioner/internal/access"
)

// A Secret is a text that shows itself in no log and no error.
type Secret string

// String hides the secret.
func (Secret) String() string { return "[hidden]" }

// GoString hides the secret.
func (Secret) GoString() string { return "[hidden]" }

// MarshalText hides the secret from every encoder.
func (Secret) MarshalText() ([]byte, error) { return []byte("[hidden]"), nil }

// A Config is the issuers that are trusted.
type Config struct {
	Issuers []Issuer `yaml:"issuers"`
}

// An Issuer is one that is trusted, and what for.
type Issuer struct {
	URL              string            `yaml:"issuer"`           // as the issuer writes it in its tokens, to the letter
	Name             string            `yaml:"name"`             // how it is called here: lower case, digits, dots and dashes; its host if left out
	Organisation     string            `yaml:"organisation"`     // ID or name of the organisation that its people belong to; default if left out
	ClientID         string            `yaml:"clientId"`         // with which people sign in; "": machines alone
	ClientSecretFile string            `yaml:"clientSecretFile"` // at most one of the two; none for a public client
	ClientSecretEnv  string            `yaml:"clientSecretEnv"`
	Scopes           []string          `yaml:"scopes"`         // openid, profile and email if left out
	GroupsClaim      string            `yaml:"groupsClaim"`    // groups if left out
	GroupsPrefix     string            `yaml:"groupsPrefix"`   // put before each group, to tell issuers' groups apart
	NameClaim        string            `yaml:"nameClaim"`      // name if left out
	AllowedDomains   []string          `yaml:"allowedDomains"` // of verified e-mail addresses; none: every person of the issuer
	Audiences        []string          `yaml:"audiences"`      // one of which a machine's token is for; none: no machines
	RolesByGroup     map[string]string `yaml:"rolesByGroup"`   // built-in roles over the whole organisation, beside assignments

	Secret Secret `yaml:"-"` // of the client; "" for a public one
}

var issuerFields = []string{
	"issuer", "name", "organisation", "clientId", "clientSecretFile", "clientSecretEnv", "scopes", "groupsClaim", "groupsPrefix",
	"nameClaim", "allowedDomains", "audiences", "rolesByGroup",
}

// A Fault is one thing that is wrong in the file.
type Fault struct {
	File  string
	Line  int // 0 if it is of no line
	Field string
	What  string
	Fix   string
}

func (f *Fault) Error() string {
	at := f.File
	if f.Line > 0 {
		at = fmt.Sprintf("%s:%d", f.File, f.Line)
	}
	return fmt.Sprintf("%s: %s: %s; %s", at, f.Field, f.What, f.Fix)
}

// Load reads a file of issuers. getenv gives the variables that clientSecretEnv names.
func Load(file string, getenv func(string) string) (*Config, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--oidc-config: %w", err)
	}
	return Parse(file, raw, getenv)
}

// Parse reads issuers from YAML. What is wrong is returned in whole, a [Fault] each.
func Parse(file string, raw []byte, getenv func(string) string) (*Config, error) {
	p := &parser{file: file, getenv: getenv}
	var doc yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(raw))
	if err := d.Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		return nil, &Fault{File: file, Field: "the file", What: yamlText(err), Fix: "write it as YAML"}
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, &Fault{File: file, Field: "the file", What: "it has more than one document", Fix: "put all issuers under one list, issuers:"}
	}
	list := p.issuers(&doc)
	var c Config
	for n, node := range list {
		c.Issuers = append(c.Issuers, p.issuer(n, node))
	}
	p.unique(list, c.Issuers)
	if len(p.faults) > 0 {
		return nil, errors.Join(p.faults...)
	}
	return &c, nil
}

type parser struct {
	file   string
	getenv func(string) string
	faults []error
}

func (p *parser) fault(n *yaml.Node, field, what, fix string) {
	f := &Fault{File: p.file, Field: field, What: what, Fix: fix}
	if n != nil {
		f.Line = n.Line
	}
	p.faults = append(p.faults, f)
}

func (p *parser) issuers(doc *yaml.Node) []*yaml.Node {
	const fix = "write issuers: and under it a list, each with issuer: and clientId: or audiences:"
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
		p.fault(nil, "the file", "it is no mapping with issuers", fix)
		return nil
	}
	var list []*yaml.Node
	for i := 0; i+1 < len(doc.Content[0].Content); i += 2 {
		key, value := doc.Content[0].Content[i], doc.Content[0].Content[i+1]
		switch {
		case key.Value != "issuers":
			p.fault(key, key.Value, "there is no such field", "the file has the field issuers alone")
		case value.Kind != yaml.SequenceNode:
			p.fault(value, "issuers", "it is no list", fix)
		default:
			list = append(list, value.Content...)
		}
	}
	if len(list) == 0 && len(p.faults) == 0 {
		p.fault(doc.Content[0], "issuers", "it names none", fix+", or leave --oidc-config out")
	}
	return list
}

func (p *parser) issuer(n int, node *yaml.Node) Issuer {
	at := fmt.Sprintf("issuers[%d]", n)
	var is Issuer
	if node.Kind != yaml.MappingNode {
		p.fault(node, at, "it is no mapping", "write issuer: and its address")
		return is
	}
	before := len(p.faults)
	lines := map[string]*yaml.Node{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key := node.Content[i]
		if !slices.Contains(issuerFields, key.Value) {
			p.fault(key, at+"."+key.Value, "there is no such field", "the fields are "+strings.Join(issuerFields, ", "))
		}
		lines[key.Value] = node.Content[i+1]
	}
	if err := node.Decode(&is); err != nil {
		p.fault(node, at, yamlText(err), "give each field the type that docs/sign-in.md shows")
	}
	if len(p.faults) > before {
		return is
	}
	is.defaults()
	is.check(func(field, what, fix string) {
		line := lines[field]
		if line == nil {
			line = node
		}
		p.fault(line, at+"."+field, what, fix)
	}, p.getenv)
	return is
}

func (is *Issuer) defaults() {
	if u, err := url.Parse(is.URL); is.Name == "" && err == nil {
		is.Name = strings.ToLower(strings.ReplaceAll(u.Host, ":", "-"))
	}
	if is.Organisation == "" {
		is.Organisation = access.DefaultOrg
	}
	if len(is.Scopes) == 0 {
		is.Scopes = []string{"openid", "profile", "email"}
	}
	if is.GroupsClaim == "" {
		is.GroupsClaim = "groups"
	}
	if is.NameClaim == "" {
		is.NameClaim = "name"
	}
	for i, d := range is.AllowedDomains {
		is.AllowedDomains[i] = strings.ToLower(d)
	}
}

var (
	nameRE   = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{0,62}$`)
	domainRE = regexp.MustCompile(`^[a-z0-9-]+(\.[a-z0-9-]+)+$`)
	roles    = []string{access.Admin, access.Editor, access.Viewer}
)

func (is *Issuer) check(fault func(field, what, fix string), getenv func(string) string) {
	if is.URL == "" {
		fault("issuer", "it is missing", "give the issuer's address as its tokens have it under iss, such as https://login.example.com")
	} else if err := safeURL(is.URL); err != nil || strings.Contains(is.URL, "?") {
		fault("issuer", "the address is not one to trust: "+fmt.Sprint(err), "use the https:// address without a query that the issuer's tokens have under iss")
	}
	if !nameRE.MatchString(is.Name) {
		fault("name", "it has other characters than lower-case letters, digits, dots and dashes, or more than 63", "give a short name, such as example")
	}
	if is.ClientID == "" && len(is.Audiences) == 0 {
		fault("clientId", "the issuer is for nobody", "give clientId to let people sign in, audiences to take the tokens of machines, or both")
	}
	if !slices.Contains(is.Scopes, "openid") {
		fault("scopes", "openid is not among them", "add openid")
	}
	for _, a := range is.Audiences {
		if a == "" || a == is.ClientID {
			fault("audiences", "an audience is empty, or is the clientId: then what people sign in with would do as a machine's token",
				"let the issuer give machines' tokens an audience of their own, such as this server's address")
		}
	}
	for _, d := range is.AllowedDomains {
		if !domainRE.MatchString(d) {
			fault("allowedDomains", fmt.Sprintf("%q is no domain", clip(d, 60)), "write it as in example.com, without @ or *")
		}
	}
	if len(is.AllowedDomains) > 0 && !slices.Contains(is.Scopes, "email") {
		fault("scopes", "email is not among them, and allowedDomains needs it", "add email")
	}
	for group, role := range is.RolesByGroup {
		if !slices.Contains(roles, role) || group == "" {
			fault("rolesByGroup", fmt.Sprintf("%q has the role %q", clip(group, 60), clip(role, 60)), "give it Admin, Editor or Viewer; custom roles are given by assignments")
		}
	}
	is.readSecret(fault, getenv)
}

func (is *Issuer) readSecret(fault func(field, what, fix string), getenv func(string) string) {
	switch {
	case is.ClientSecretFile != "" && is.ClientSecretEnv != "":
		fault("clientSecretFile", "clientSecretEnv is given too", "leave one of them out")
	case (is.ClientSecretFile != "" || is.ClientSecretEnv != "") && is.ClientID == "":
		fault("clientId", "there is a secret and no client", "give clientId, or leave the secret out")
	case is.ClientSecretFile != "":
		info, err := os.Stat(is.ClientSecretFile)
		var raw []byte
		if err == nil && info.Mode().Perm()&0o007 != 0 {
			fault("clientSecretFile", "everybody on this machine can read it", "chmod 0600 "+is.ClientSecretFile)
			return
		}
		if err == nil {
			raw, err = os.ReadFile(is.ClientSecretFile)
		}
		if err != nil {
			fault("clientSecretFile", err.Error(), "name a file that holds the secret alone")
			return
		}
		if is.Secret = Secret(strings.TrimSpace(string(raw))); is.Secret == "" {
			fault("clientSecretFile", "the file is empty", "write the secret into it")
		}
	case is.ClientSecretEnv != "":
		if is.Secret = Secret(strings.TrimSpace(getenv(is.ClientSecretEnv))); is.Secret == "" {
			fault("clientSecretEnv", "the variable "+is.ClientSecretEnv+" is empty", "set it to the client's secret")
		}
	}
}

func (p *parser) unique(nodes []*yaml.Node, list []Issuer) {
	for n, is := range list {
		for _, other := range list[:n] {
			if is.URL != "" && is.URL == other.URL {
				p.fault(nodes[n], fmt.Sprintf("issuers[%d].issuer", n), "it is there twice", "an issuer belongs to one organisation; put all into one entry")
			}
			if is.Name != "" && is.Name == other.Name && is.URL != other.URL {
				p.fault(nodes[n], fmt.Sprintf("issuers[%d].name", n), "another issuer has it", "give each a name of its own")
			}
		}
	}
}

func yamlText(err error) string { return strings.TrimPrefix(err.Error(), "yaml: ") }
