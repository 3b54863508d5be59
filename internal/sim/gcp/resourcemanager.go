package gcp

import (
	"fmt"
	"slices"
	"strings"

	"github.com/zopday/provisioner/internal/sim"
)

// resourceManager is the simulated Resource Manager: projects and their policies, in versions 1 and 3.
type resourceManager struct {
	cloud *Cloud
	st    resourceManagerState
}

type resourceManagerState struct {
	Policies map[string]*policy // by project ID
}

// organization is the number of the organization that all projects are in.
const organization = "987654321098"

const projectCreated = "2024-01-15T16:00:00.000000Z"

func newResourceManager(c *Cloud) *resourceManager {
	m := &resourceManager{cloud: c}
	c.World.Register(m)
	c.hooks.accountGone = append(c.hooks.accountGone, m.accountGone)
	c.hooks.roles = m.roles
	v1 := map[string]operation{
		"projects.get":  func(r *request) (any, error) { return projectV1(r.Project), nil },
		"projects.list": func(r *request) (any, error) { return m.listProjects(r, projectV1) },
	}
	v3 := map[string]operation{
		"projects.get":    func(r *request) (any, error) { return projectV3(r.Project), nil },
		"projects.list":   func(r *request) (any, error) { return m.listProjects(r, projectV3) },
		"projects.search": func(r *request) (any, error) { return m.listProjects(r, projectV3) },
	}
	for _, ops := range []map[string]operation{v1, v3} {
		ops["projects.getIamPolicy"] = m.getPolicy
		ops["projects.setIamPolicy"] = m.setPolicy
		ops["projects.testIamPermissions"] = testPermissions
		ops["operations.get"] = func(r *request) (any, error) {
			return nil, refuse(404, "notFound", "Operation not found: %s", r.Path["name"])
		}
	}
	claims := func(path string) bool {
		return !strings.Contains(path, "/operations/") || strings.Contains(path, "/operations/cp.")
	}
	c.add("cloudresourcemanager/v1", &api{service: "cloudresourcemanager", ops: v1, claims: claims})
	c.add("cloudresourcemanager/v3", &api{service: "cloudresourcemanager", ops: v3, claims: claims})
	return m
}

func projectV1(p Project) Doc {
	return Doc{"projectNumber": p.Number, "projectId": p.ID, "lifecycleState": "ACTIVE", "name": orText(p.Name, p.ID), "createTime": projectCreated,
		"parent": Doc{"type": "organization", "id": organization}}
}

func projectV3(p Project) Doc {
	return Doc{"name": "projects/" + p.Number, "projectId": p.ID, "state": "ACTIVE", "displayName": orText(p.Name, p.ID), "parent": "organizations/" + organization, "createTime": projectCreated,
		"updateTime": projectCreated, "etag": `W/"` + fingerprint(p.ID) + `"`}
}

// listProjects lists the projects that the caller may use.
func (m *resourceManager) listProjects(r *request, doc func(Project) Doc) (any, error) {
	var items []Doc
	for _, id := range m.cloud.projectIDs() {
		p, _ := m.cloud.project(id)
		if r.Who.may(id) {
			items = append(items, doc(p))
		}
	}
	return r.page(items, "projects", 500)
}

func (m *resourceManager) Cloud() string        { return cloudName }
func (m *resourceManager) Name() string         { return "cloudresourcemanager" }
func (m *resourceManager) State() any           { return &m.st }
func (m *resourceManager) Event(string, string) {}

// firstBindings are the bindings of a fresh project: the default account of Compute Engine is an editor, the administrators
// are owners.
func firstBindings(p Project) []any {
	return []any{
		Doc{"role": "roles/editor", "members": []any{"serviceAccount:" + p.Number + "-compute@developer.gserviceaccount.com"}},
		Doc{"role": "roles/owner", "members": []any{"serviceAccount:" + AdminAccount + "@" + p.ID + ".iam.gserviceaccount.com", "user:user@example.com"}},
	}
}

// Reset starts afresh.
func (m *resourceManager) Reset() {
	m.st.Policies = map[string]*policy{}
	for _, p := range m.cloud.opt.Projects {
		m.st.Policies[p.ID] = &policy{Tag: "BwXE56QgxWk=", Doc: Doc{"version": float64(1), "bindings": firstBindings(p)}}
	}
}

// first says whether a binding is one of a fresh project.
func (m *resourceManager) first(project, role, member string) bool {
	p, _ := m.cloud.project(project)
	for _, b := range docs(Doc{"": firstBindings(p)}, "") {
		if str(b, "role") == role && slices.Contains(texts(b, "members"), member) {
			return true
		}
	}
	return false
}

// accountGone renames a deleted service account in the policies, as it stays there until somebody takes it out ("Policies with
// deleted principals", IAM).
func (m *resourceManager) accountGone(a ServiceAccount) {
	for _, p := range m.st.Policies {
		p.accountGone(a)
	}
}

// roles are those that a member has in a project.
func (m *resourceManager) roles(project, member string) []string {
	p := m.st.Policies[project]
	if p == nil {
		return nil
	}
	var out []string
	for _, b := range docs(p.Doc, "bindings") {
		if slices.Contains(texts(b, "members"), member) {
			out = append(out, str(b, "role"))
		}
	}
	return out
}

func bindingID(project, role, member string) string {
	return "projects/" + project + "/iamBindings/" + role + "/" + member
}

// Objects lists who has which role in a project. The accounts that are there from the start have theirs from the start.
func (m *resourceManager) Objects() []sim.Object {
	var out []sim.Object
	for _, project := range keysOf(m.st.Policies) {
		p := m.st.Policies[project]
		for _, b := range docs(p.Doc, "bindings") {
			for _, member := range texts(b, "members") {
				o := sim.Object{Account: project, Kind: "iam-binding", ID: bindingID(project, str(b, "role"), member), Name: member,
					Pristine: m.first(project, str(b, "role"), member), Data: Doc{"role": b["role"], "member": member}}
				// What is left of a deleted account in a policy is still its owner's.
				if a := m.cloud.iam.memberAccount(member); a != nil {
					o.Parents, o.Description = []string{a.path()}, str(a.Doc, "description")+" "+str(a.Doc, "displayName")
				}
				if cond := sub(b, "condition"); cond != nil {
					o.Description += " " + str(cond, "title") + " " + str(cond, "description")
				}
				out = append(out, o)
			}
		}
	}
	return out
}

// SetState is for nothing here.
func (m *resourceManager) SetState(id, _, _, _ string) error {
	return fmt.Errorf("%s has no states", id)
}

// Remove takes a member out of a role.
func (m *resourceManager) Remove(id string) error {
	for project, p := range m.st.Policies {
		var kept []any
		found := false
		for _, b := range docs(p.Doc, "bindings") {
			var members []any
			for _, member := range texts(b, "members") {
				if bindingID(project, str(b, "role"), member) == id {
					found = true
				} else {
					members = append(members, member)
				}
			}
			if b["members"] = members; len(members) > 0 {
				kept = append(kept, b)
			}
		}
		if found {
			p.Doc["bindings"] = kept
			p.Seq++
			p.Tag = etag(fingerprint([]any{p.Doc, p.Seq}))
			return nil
		}
	}
	return fmt.Errorf("no object %s", id)
}

func (m *resourceManager) getPolicy(r *request) (any, error) {
	r.Touch("projects/" + r.Project.ID)
	return m.st.Policies[r.Project.ID].shown(), nil
}

func (m *resourceManager) setPolicy(r *request) (any, error) {
	next, err := m.cloud.changePolicy(r, m.st.Policies[r.Project.ID])
	if err != nil {
		return nil, err
	}
	m.st.Policies[r.Project.ID] = next
	r.Touch("projects/" + r.Project.ID)
	return next.shown(), nil
}
