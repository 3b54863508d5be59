package azure

import (
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/authorization/armauthorization/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/msi/armmsi"

	"github.com/zopday/provisioner/internal/sim"
)

func (g *rig) identities() *armmsi.UserAssignedIdentitiesClient {
	cred, opt := g.arm()
	return must(armmsi.NewUserAssignedIdentitiesClient(DefaultSubscription, cred, opt))(g.t)
}

func (g *rig) assignments() *armauthorization.RoleAssignmentsClient {
	cred, opt := g.arm()
	return must(armauthorization.NewRoleAssignmentsClient(DefaultSubscription, cred, opt))(g.t)
}

func (g *rig) definitions() *armauthorization.RoleDefinitionsClient {
	cred, opt := g.arm()
	return must(armauthorization.NewRoleDefinitionsClient(cred, opt))(g.t)
}

// The scope and the names of the assignments of the tests.
const (
	subscriptionScope = "/subscriptions/" + DefaultSubscription
	firstAssignment   = "11111111-1111-4111-8111-111111111111"
	secondAssignment  = "22222222-2222-4222-8222-222222222222"
	reader            = subscriptionScope + "/providers/Microsoft.Authorization/roleDefinitions/acdd72a7-3385-48ef-bd42-f606fba81ae7"
)

func TestRoleAssignmentOfAFreshIdentity(t *testing.T) {
	t.Parallel()
	g := newRig(t, func(o *sim.Options) { o.ConsistencyByList = 0 })
	g.group("rg")
	id := must(g.identities().CreateOrUpdate(g.ctx, "rg", "id", armmsi.Identity{Location: new("westus2")}, nil))(t)
	if id.Properties.PrincipalID == nil || id.Properties.ClientID == nil {
		t.Fatalf("identity %s", text(id.Identity))
	}
	scope := subscriptionScope + "/resourceGroups/rg"
	ask := armauthorization.RoleAssignmentCreateParameters{Properties: &armauthorization.RoleAssignmentProperties{PrincipalID: id.Properties.PrincipalID, RoleDefinitionID: new(reader)}}
	refusals := 0
	for {
		got, err := g.assignments().Create(g.ctx, scope, firstAssignment, ask, nil)
		if err == nil {
			if *got.Properties.PrincipalType != armauthorization.PrincipalTypeServicePrincipal || *got.Properties.Scope != scope {
				t.Errorf("assignment %s", text(got))
			}
			break
		}
		refused(t, err, 400, "PrincipalNotFound")
		if refusals++; refusals > 20 {
			t.Fatal("the principal never arrives")
		}
		g.world.Step(5 * time.Second)
	}
	if refusals < 2 {
		t.Errorf("%d refusals, want several", refusals)
	}
	// Whoever names the principal's type is not kept waiting.
	other := must(g.identities().CreateOrUpdate(g.ctx, "rg", "other", armmsi.Identity{Location: new("westus2")}, nil))(t)
	ask.Properties.PrincipalID, ask.Properties.PrincipalType = other.Properties.PrincipalID, new(armauthorization.PrincipalTypeServicePrincipal)
	must(g.assignments().Create(g.ctx, scope, secondAssignment, ask, nil))(t)
}

func TestRoleAssignments(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.group("rg")
	id := must(g.identities().CreateOrUpdate(g.ctx, "rg", "id", armmsi.Identity{Location: new("westus2"), Tags: map[string]*string{"owner": new("job_3")}}, nil))(t)
	again := must(g.identities().CreateOrUpdate(g.ctx, "rg", "id", armmsi.Identity{Location: new("westus2"), Tags: map[string]*string{"owner": new("job_3")}}, nil))(t)
	if *again.Properties.PrincipalID != *id.Properties.PrincipalID {
		t.Error("written again, the identity is another")
	}
	scope, roles := subscriptionScope+"/resourceGroups/rg", g.assignments()
	ask := func(who, role string) armauthorization.RoleAssignmentCreateParameters {
		return armauthorization.RoleAssignmentCreateParameters{Properties: &armauthorization.RoleAssignmentProperties{PrincipalID: &who, RoleDefinitionID: &role}}
	}
	who := *id.Properties.PrincipalID
	must(roles.Create(g.ctx, scope, firstAssignment, ask(who, reader), nil))(t)
	must(roles.Create(g.ctx, scope, firstAssignment, ask(who, reader), nil))(t)
	_, err := roles.Create(g.ctx, scope, secondAssignment, ask(who, reader), nil)
	refused(t, err, 409, "RoleAssignmentExists")
	_, err = roles.Create(g.ctx, scope, secondAssignment, ask("wow", reader), nil)
	refused(t, err, 400, "InvalidPrincipalId")
	_, err = roles.Create(g.ctx, scope, secondAssignment, ask("33333333-3333-4333-8333-333333333333", reader), nil)
	refused(t, err, 400, "PrincipalNotFound")
	_, err = roles.Create(g.ctx, scope, secondAssignment, ask(who, strings.Replace(reader, "acdd72a7", "00000000", 1)), nil)
	refused(t, err, 400, "RoleDefinitionDoesNotExist")
	_, err = roles.Create(g.ctx, scope, "no-guid", ask(who, reader), nil)
	refused(t, err, 400, "InvalidRoleAssignmentId")

	count := func(scope, filter string) int {
		t.Helper()
		escaped := strings.ReplaceAll(filter, " ", "%20") // this client sends the filter as it is
		n, pager := 0, roles.NewListForScopePager(scope, &armauthorization.RoleAssignmentsClientListForScopeOptions{Filter: &escaped})
		for pager.More() {
			n += len(must(pager.NextPage(g.ctx))(t).Value)
		}
		return n
	}
	for filter, want := range map[string]int{"principalId eq '" + who + "'": 1, "principalId eq '" + secondAssignment + "'": 0, "atScope()": 0} {
		if got := count(subscriptionScope, filter); got != want {
			t.Errorf("%s: %d assignments below the subscription, want %d", filter, got, want)
		}
	}
	if got := count(scope, "atScope()"); got != 1 {
		t.Errorf("%d assignments at the group", got)
	}
	gone := must(roles.Delete(g.ctx, scope, firstAssignment, nil))(t)
	if gone.ID == nil || *gone.Name != firstAssignment {
		t.Errorf("deleted %s", text(gone))
	}
	if none := must(roles.Delete(g.ctx, scope, firstAssignment, nil))(t); none.ID != nil {
		t.Errorf("deleted again: %s", text(none))
	}
	_, err = roles.Get(g.ctx, scope, firstAssignment, nil)
	refused(t, err, 404, "RoleAssignmentNotFound")
	must(g.identities().Delete(g.ctx, "rg", "id", nil))(t)
	_, err = g.identities().Get(g.ctx, "rg", "id", nil)
	refused(t, err, 404, "ResourceNotFound")
}

func TestRoleDefinitions(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	defs := g.definitions()
	page := must(defs.NewListPager(subscriptionScope, &armauthorization.RoleDefinitionsClientListOptions{Filter: new("roleName eq 'Network Contributor'")}).NextPage(g.ctx))(t)
	if len(page.Value) != 1 || *page.Value[0].Name != "4d97b98b-1d4f-4787-a291-c67834d212e7" {
		t.Errorf("roles %s", text(page))
	}
	if got := must(defs.GetByID(g.ctx, reader, nil))(t); *got.Properties.RoleName != "Reader" {
		t.Errorf("role %s", text(got))
	}
	custom := armauthorization.RoleDefinition{Properties: &armauthorization.RoleDefinitionProperties{RoleName: new("Lister"), AssignableScopes: []*string{new(subscriptionScope)},
		Permissions: []*armauthorization.Permission{{Actions: []*string{new("*/read")}}}}}
	made := must(defs.CreateOrUpdate(g.ctx, subscriptionScope, firstAssignment, custom, nil))(t)
	if *made.Properties.RoleType != "CustomRole" {
		t.Errorf("made %s", text(made))
	}
	_, err := defs.CreateOrUpdate(g.ctx, subscriptionScope, secondAssignment, custom, nil)
	refused(t, err, 409, "RoleDefinitionWithSameNameExists")
	g.group("rg")
	ask := armauthorization.RoleAssignmentCreateParameters{Properties: &armauthorization.RoleAssignmentProperties{PrincipalID: &DefaultClients()[0].ObjectID, RoleDefinitionID: made.ID}}
	must(g.assignments().Create(g.ctx, subscriptionScope+"/resourceGroups/rg", secondAssignment, ask, nil))(t)
	_, err = defs.Delete(g.ctx, subscriptionScope, firstAssignment, nil)
	refused(t, err, 400, "RoleDefinitionHasAssignments")
	must(g.assignments().Delete(g.ctx, subscriptionScope+"/resourceGroups/rg", secondAssignment, nil))(t)
	must(defs.Delete(g.ctx, subscriptionScope, firstAssignment, nil))(t)
	_, err = defs.Get(g.ctx, subscriptionScope, firstAssignment, nil)
	refused(t, err, 404, "RoleDefinitionDoesNotExist")
}
