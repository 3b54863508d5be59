package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/audit"
	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/ledger"
	"github.com/zopday/provisioner/internal/steps"
)

// A ConnectionRequest says who may use a datastore or cache.
type ConnectionRequest struct {
	DatabaseID string         `json:"databaseId,omitempty" doc:"The logical database, by its ID or its name; left out for a cache, and where the path names one"`
	Service    string         `json:"service" doc:"Who uses it: 1 to 48 of a-z, 0-9 and hyphen"`
	Access     job.AccessMode `json:"access,omitempty" enum:"read_write,read_only,owner" doc:"read_write (default): reads and changes data; read_only; owner: makes and changes tables too"`
	SpaceID    string         `json:"spaceId,omitempty" doc:"A space of type kubernetes, by its ID or its name: the credentials are kept in a Secret there"`
	Namespace  string         `json:"namespace,omitempty" doc:"Namespace of the Secret; default, if left out; made if it is not there"`
	SecretName string         `json:"secretName,omitempty" doc:"Name of the Secret; made of service and database if left out"`
	Variable   string         `json:"variable,omitempty" doc:"A further key of the Secret that holds the whole URL, such as DATABASE_URL"`
}

// A Revealed is the secret behind a connection, shown once.
type Revealed struct {
	Connection  job.Connection    `json:"connection"`
	Credentials map[string]string `json:"credentials" doc:"host, port, database, username, password, url, and ca.crt where the datastore has a certificate authority of its own"`
}

// Connections lists the connections of a job, or of one of its databases.
func (s *Service) Connections(ctx context.Context, ref, database string) ([]job.Connection, error) {
	j, err := s.datastore(ctx, access.ConnectionView, ref, true)
	if err != nil {
		return nil, err
	}
	all, err := s.Ledger.Connections(ctx, j.OrgID, j.ID)
	if err != nil || database == "" {
		return all, err
	}
	d, err := s.databaseOf(ctx, j, database)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(c job.Connection) bool { return c.DatabaseID != d.ID }), nil
}

// Connection reads one connection of a job, or of one of its databases.
func (s *Service) Connection(ctx context.Context, ref, database, connection string) (*job.Connection, error) {
	j, err := s.datastore(ctx, access.ConnectionView, ref, true)
	if err != nil {
		return nil, err
	}
	return s.connectionOf(ctx, j, database, connection)
}

// connectionOf finds a connection by its ID, or by its service where one alone has
// that.
func (s *Service) connectionOf(ctx context.Context, j *job.Job, database, ref string) (*job.Connection, error) {
	all, err := s.Ledger.Connections(ctx, j.OrgID, j.ID)
	if err != nil {
		return nil, err
	}
	if database != "" {
		d, err := s.databaseOf(ctx, j, database)
		if err != nil {
			return nil, err
		}
		all = slices.DeleteFunc(all, func(c job.Connection) bool { return c.DatabaseID != d.ID })
	}
	if i := slices.IndexFunc(all, func(c job.Connection) bool { return c.ID == ref }); i >= 0 {
		return &all[i], nil
	}
	all = slices.DeleteFunc(all, func(c job.Connection) bool { return c.Service != ref })
	switch len(all) {
	case 1:
		return &all[0], nil
	case 0:
		return nil, &Refusal{Kind: NotFound, Job: j.ID, Message: fmt.Sprintf("the job %s has no such connection", j.Name), Hint: "GET …/connections lists what there is."}
	}
	return nil, &Refusal{Kind: Ambiguous, Job: j.ID, Message: fmt.Sprintf("%d connections of the job %s are of the service %s", len(all), j.Name, ref), Hint: "Use the connection's ID."}
}

// CreateConnection asks for a connection. The same service of the same database
// again gives the same connection, and tries one that failed again; asked for
// differently it is refused.
func (s *Service) CreateConnection(ctx context.Context, ref, database string, r ConnectionRequest) (c *job.Connection, created bool, err error) {
	j, err := s.datastore(ctx, access.ConnectionCreate, ref, false)
	if err != nil {
		return nil, false, err
	}
	caller, _ := access.From(ctx) // known: the job was found for it
	row, err := s.newConnection(ctx, caller, j, database, r)
	if err == nil {
		err = s.reachable(ctx, j)
	}
	if err != nil {
		return nil, false, s.refused(ctx, access.ConnectionCreate, j.ID, err)
	}
	err = s.changeLogical(ctx, access.ConnectionCreate, j, func(ctx context.Context, tx db.Q, p access.Principal) (due bool, e audit.Entry, err error) {
		row.CreatedBy = p.Actor
		have, added, err := s.Ledger.AddConnection(ctx, tx, p.OrgID, row)
		if err != nil {
			return false, e, err
		}
		switch c, created = &have, added; {
		case added:
			due = true
		case have.Status == job.LogicalDeleting:
			return false, e, refuse(WrongState, "Ask again once it is gone.", "the connection of %s is being deleted", have.Service)
		case have.Access != row.Access || have.SpaceID != row.SpaceID || have.Namespace != row.Namespace || have.SecretName != row.SecretName || have.Variable != row.Variable:
			return false, e, &Refusal{Kind: NameTaken, Job: j.ID, Message: fmt.Sprintf("%s has a connection to this already, %s, which asks for something else", have.Service, have.ID),
				Hint: "Delete it first, or give this one another service.", Fields: []job.FieldError{{Field: "service", Message: "has a connection already", Fix: "use another name"}}}
		case have.Status == job.LogicalFailed:
			due, err = true, s.Ledger.AskConnection(ctx, tx, p.OrgID, have.ID, p.Actor, ledger.AskAgain)
		}
		return due, audit.Entry{ResourceType: "connection", ResourceID: have.ID, Detail: map[string]any{
			"job": j.ID, "database": have.DatabaseID, "service": have.Service, "access": string(have.Access), "space": have.SpaceID, "new": added}}, err
	})
	if err != nil {
		return nil, false, err
	}
	c, err = s.connectionOf(ctx, j, "", c.ID)
	return c, created, err
}

// newConnection checks a request and makes the row that it asks for.
func (s *Service) newConnection(ctx context.Context, caller access.Principal, j *job.Job, database string, r ConnectionRequest) (job.Connection, error) {
	if err := takesLogical(j, "no user is made in it", false); err != nil {
		return job.Connection{}, err
	}
	r.Access = cmp.Or(r.Access, job.ReadWrite)
	c := job.Connection{ID: job.NewID("con"), JobID: j.ID, Service: r.Service, Access: r.Access, SecretName: r.SecretName, Namespace: r.Namespace, Variable: r.Variable, Status: job.LogicalPending}
	fields := job.ConnectionFaults(&c)
	if r.SpaceID == "" {
		for _, f := range []struct{ field, given string }{{"namespace", r.Namespace}, {"secretName", r.SecretName}, {"variable", r.Variable}} {
			if f.given != "" {
				fields = append(fields, job.FieldError{Field: f.field, Message: "is of a Secret in a space, and no space is named", Fix: "give spaceId, or leave it out"})
			}
		}
	}
	switch {
	case j.ResourceType == job.Cache && cmp.Or(database, r.DatabaseID) != "":
		fields = append(fields, job.FieldError{Field: "databaseId", Message: "a cache has no logical databases", Fix: "leave it out"})
	case j.ResourceType == job.Datastore && cmp.Or(database, r.DatabaseID) == "":
		fields = append(fields, job.FieldError{Field: "databaseId", Message: "is missing", Fix: "name one of GET …/databases"})
	case database != "" && r.DatabaseID != "" && database != r.DatabaseID:
		fields = append(fields, job.FieldError{Field: "databaseId", Message: "is another one than the path names", Fix: "leave it out"})
	}
	if len(fields) > 0 {
		return c, invalid(fields...)
	}
	c.Role = job.RoleName(c.Service, c.ID)
	if j.ResourceType == job.Datastore {
		d, err := s.databaseOf(ctx, j, cmp.Or(database, r.DatabaseID))
		if err != nil {
			return c, err
		}
		if d.Status == job.LogicalDeleting || d.Status == job.LogicalFailed {
			return c, notReady("the database "+d.Name, d.Status, d.Error)
		}
		c.DatabaseID = d.ID
		c.SecretName = cmp.Or(c.SecretName, secretName(c.Service, d.Name))
	}
	if r.SpaceID == "" {
		c.SecretName = ""
		return c, nil
	}
	c.SecretName, c.Namespace = cmp.Or(c.SecretName, secretName(c.Service, j.Name)), cmp.Or(c.Namespace, "default")
	space, err := s.installable(ctx, caller, r.SpaceID)
	if err == nil {
		err = s.mayPutInto(ctx, caller, space)
	}
	var refused *Refusal
	if errors.As(err, &refused) {
		for i := range refused.Fields {
			refused.Fields[i].Field = "spaceId"
		}
	}
	c.SpaceID = space.GetId()
	return c, err
}

// secretName is what the Secret of a connection is called if nobody says.
func secretName(service, of string) string {
	name := service + "-" + strings.ReplaceAll(of, "_", "-")
	return strings.TrimRight(name[:min(len(name), 63)], "-")
}

// DeleteConnection asks for the end of a connection: its role is dropped, and its
// secret is removed wherever it is.
func (s *Service) DeleteConnection(ctx context.Context, ref, database, connection string) (*job.Connection, error) {
	return s.askConnection(ctx, access.ConnectionDelete, ledger.AskDelete, ref, database, connection)
}

// RotateConnection asks for another password of a connection; the one that it has
// counts until then. Its secret can be revealed once more afterwards. Of a credential
// that all users of a cache share, it reads what the cloud has now.
func (s *Service) RotateConnection(ctx context.Context, ref, database, connection string) (*job.Connection, error) {
	return s.askConnection(ctx, access.ConnectionCreate, ledger.AskRotate, ref, database, connection)
}

func (s *Service) askConnection(ctx context.Context, policy access.Policy, ask ledger.Ask, ref, database, connection string) (*job.Connection, error) {
	j, err := s.datastore(ctx, policy, ref, false)
	if err != nil {
		return nil, err
	}
	c, err := s.connectionOf(ctx, j, database, connection)
	if err == nil && ask == ledger.AskRotate {
		switch c.Status {
		case job.LogicalDeleting, job.LogicalPending, job.LogicalCreating:
			err = notReady("the connection of "+c.Service, c.Status, nil)
		default:
			err = s.reachable(ctx, j)
		}
	}
	if err != nil {
		return nil, s.refused(ctx, policy, j.ID, err)
	}
	err = s.changeLogical(ctx, policy, j, func(ctx context.Context, tx db.Q, p access.Principal) (bool, audit.Entry, error) {
		err := s.Ledger.AskConnection(ctx, tx, p.OrgID, c.ID, p.Actor, ask)
		detail := map[string]any{"job": j.ID, "service": c.Service, "database": c.DatabaseID}
		if ask == ledger.AskRotate {
			detail["rotate"] = true
		}
		return true, audit.Entry{ResourceType: "connection", ResourceID: c.ID, Detail: detail}, err
	})
	if err != nil {
		return nil, err
	}
	return s.connectionOf(ctx, j, "", c.ID)
}

// Reveal shows the secret behind a connection, once: of two who ask, one gets it.
// Who asked, and whether they got it, is in the audit log.
func (s *Service) Reveal(ctx context.Context, ref, database, connection string) (*Revealed, error) {
	j, err := s.datastore(ctx, access.ConnectionReveal, ref, false)
	if err != nil {
		return nil, err
	}
	c, err := s.connectionOf(ctx, j, database, connection)
	if err == nil && s.Logical == nil {
		err = &Refusal{Kind: CloudNotAvailable, Message: "the secret store of this server is closed", Hint: "Start the server with its key (ZOPDAY_SECRET_KEY), then ask again."}
	}
	if err != nil {
		return nil, s.refused(ctx, access.ConnectionReveal, j.ID, err)
	}
	name := ""
	if c.DatabaseID != "" {
		d, err := s.databaseOf(ctx, j, c.DatabaseID)
		if err != nil {
			return nil, s.refused(ctx, access.ConnectionReveal, j.ID, err)
		}
		name = d.Name
	}
	var out *Revealed
	err = s.mutate(ctx, access.ConnectionReveal, c.ID, func(ctx context.Context, tx db.Q, p access.Principal) (audit.Entry, error) {
		now, err := s.Ledger.LockConnection(ctx, tx, p.OrgID, c.ID)
		switch {
		case err != nil:
			return audit.Entry{}, err
		case now.Status != job.LogicalReady:
			return audit.Entry{}, notReady("the connection of "+now.Service, now.Status, now.Error)
		case now.RevealedAt != nil:
			return audit.Entry{}, refuse(WrongState, "Rotate it (POST …/rotate) to get a new one that can be shown once.",
				"the secret was shown to %s at %s, and is shown once", now.RevealedBy, now.RevealedAt.Format(time.RFC3339))
		}
		password, err := s.Logical.Secret(ctx, p.OrgID, job.SecretID(now.ID, now.Secret))
		if err != nil {
			return audit.Entry{}, err
		}
		if err := s.Ledger.AskConnection(ctx, tx, p.OrgID, now.ID, p.Actor, ledger.AskReveal); err != nil {
			return audit.Entry{}, err
		}
		at := s.Now().UTC()
		now.RevealedAt, now.RevealedBy = &at, p.Actor
		out = &Revealed{Connection: now, Credentials: steps.Credentials(j, name, cloud.CacheCredential{User: now.Role, Password: password})}
		return audit.Entry{ResourceType: "connection", ResourceID: now.ID, Detail: map[string]any{"job": j.ID, "service": now.Service}}, nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}
