package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/provision"
)

const tagDatabases = "Databases"

// DatabaseID is the path parameter of everything about one logical database.
type DatabaseID struct {
	DatabaseID string `path:"dbID" doc:"The database's ID or its name"`
}

// ConnectionID is the path parameter of everything about one connection.
type ConnectionID struct {
	ConnectionID string `path:"connID" doc:"The connection's ID, or its service where one alone has that"`
}

const databasesPath = "/provisioning-jobs/{id}/databases"

type databaseOut struct {
	Status   int
	Location string `header:"Location" doc:"Where the database is found"`
	Body     Data[*job.LogicalDatabase]
}

func databaseAnswer(status int, d *job.LogicalDatabase) *databaseOut {
	return &databaseOut{Status: status, Location: "/provisioning-jobs/" + d.JobID + "/databases/" + d.ID, Body: Data[*job.LogicalDatabase]{Data: d}}
}

func (s *server) databaseRoutes() {
	type listOut struct{ Body List[job.LogicalDatabase] }
	route(s, huma.Operation{
		OperationID: "list-databases", Method: http.MethodGet, Path: databasesPath, Tags: []string{tagDatabases},
		Summary: "List the logical databases of a datastore", Errors: []int{404, 409, 422},
	}, []access.Policy{access.DatabaseView}, func(ctx context.Context, in *JobID) (*listOut, error) {
		items, err := s.Service.Databases(ctx, in.ID)
		if err != nil {
			return nil, err
		}
		return &listOut{listOf(items, "")}, nil
	})
	s.createDatabaseRoute()
	type oneIn struct {
		JobID
		DatabaseID
	}
	route(s, huma.Operation{
		OperationID: "get-database", Method: http.MethodGet, Path: databasesPath + "/{dbID}", Tags: []string{tagDatabases}, Summary: "Get a logical database", Errors: []int{404, 409, 422},
	}, []access.Policy{access.DatabaseView}, func(ctx context.Context, in *oneIn) (*databaseOut, error) {
		d, err := s.Service.Database(ctx, in.ID, in.DatabaseID.DatabaseID)
		if err != nil {
			return nil, err
		}
		return databaseAnswer(http.StatusOK, d), nil
	})
	type deleteIn struct {
		JobID
		DatabaseID
		Confirm string `query:"confirm" maxLength:"80" doc:"The database's name, repeated: what is in it goes with it"`
	}
	route(s, huma.Operation{
		OperationID: "delete-database", Method: http.MethodDelete, Path: databasesPath + "/{dbID}", Tags: []string{tagDatabases}, DefaultStatus: http.StatusAccepted,
		Summary:     "Drop a logical database and its owner",
		Description: "Refused while connections are attached, and on a datastore that was adopted.", Errors: []int{404, 409, 422},
	}, []access.Policy{access.DatabaseDelete}, func(ctx context.Context, in *deleteIn) (*databaseOut, error) {
		if err := plainText(in.Confirm); err != nil {
			return nil, err
		}
		d, err := s.Service.DeleteDatabase(ctx, in.ID, in.DatabaseID.DatabaseID, in.Confirm)
		if err != nil {
			return nil, err
		}
		return databaseAnswer(http.StatusAccepted, d), nil
	})
	s.connectionRoutes()
	s.presetRoute()
	s.recommendRoute()
}

func (s *server) createDatabaseRoute() {
	type createIn struct {
		JobID
		RawBody []byte `contentType:"application/json"`
	}
	route(s, huma.Operation{
		OperationID: "create-database", Method: http.MethodPost, Path: databasesPath, Tags: []string{tagDatabases}, DefaultStatus: http.StatusAccepted,
		Summary:     "Make a logical database with an owner of its own",
		Description: "The same name again gives the same database, and tries one that failed again. A database that exists and was not made here is never taken over.", Errors: []int{404, 409, 413, 415, 422, 503},
	}, []access.Policy{access.DatabaseCreate}, func(ctx context.Context, in *createIn) (*databaseOut, error) {
		var r provision.DatabaseRequest
		if err := s.decode(ctx, access.DatabaseCreate, in.ID, in.RawBody, &r); err != nil {
			return nil, err
		}
		d, created, err := s.Service.CreateDatabase(ctx, in.ID, r)
		if err != nil {
			return nil, err
		}
		return databaseAnswer(accepted(created), d), nil
	})
	bodyOf[provision.DatabaseRequest](s, databasesPath, http.MethodPost)
}

// accepted is the status of a request that is carried out later: 200 if it was made
// before.
func accepted(created bool) int {
	if created {
		return http.StatusAccepted
	}
	return http.StatusOK
}

type connectionOut struct {
	Status   int
	Location string `header:"Location" doc:"Where the connection is found"`
	Body     Data[*job.Connection]
}

func connectionAnswer(status int, c *job.Connection) *connectionOut {
	return &connectionOut{Status: status, Location: "/provisioning-jobs/" + c.JobID + "/connections/" + c.ID, Body: Data[*job.Connection]{Data: c}}
}

// connectionRoutes are those of connections, under a job and under one of its
// databases.
func (s *server) connectionRoutes() {
	const ofJob, ofDatabase = "/provisioning-jobs/{id}/connections", databasesPath + "/{dbID}/connections"
	listConnections(s, ofJob, "", func(in *JobID) (string, string) { return in.ID, "" })
	createConnection(s, ofJob, "", func(in *createConnectionIn) (string, string, []byte) { return in.ID, "", in.RawBody })
	oneConnection(s, ofJob, "", func(in *jobConnection) (string, string, string) { return in.ID, "", in.ConnectionID.ConnectionID })

	const suffix = "-of-database"
	listConnections(s, ofDatabase, suffix, func(in *jobDatabase) (string, string) { return in.ID, in.DatabaseID.DatabaseID })
	createConnection(s, ofDatabase, suffix, func(in *createOfDatabaseIn) (string, string, []byte) {
		return in.ID, in.DatabaseID.DatabaseID, in.RawBody
	})
	oneConnection(s, ofDatabase, suffix, func(in *databaseConnection) (string, string, string) {
		return in.ID, in.DatabaseID.DatabaseID, in.ConnectionID.ConnectionID
	})
}

type createConnectionIn struct {
	JobID
	RawBody []byte `contentType:"application/json"`
}

type createOfDatabaseIn struct {
	JobID
	DatabaseID
	RawBody []byte `contentType:"application/json"`
}

type jobDatabase struct {
	JobID
	DatabaseID
}

type jobConnection struct {
	JobID
	ConnectionID
}

type databaseConnection struct {
	JobID
	DatabaseID
	ConnectionID
}

// listConnections lists connections; at reads job and database out of the path.
func listConnections[In any](s *server, path, suffix string, at func(*In) (jobID, database string)) {
	type listOut struct{ Body List[job.Connection] }
	route(s, huma.Operation{
		OperationID: "list-connections" + suffix, Method: http.MethodGet, Path: path, Tags: []string{tagDatabases}, Summary: "List connections", Errors: []int{404, 409, 422},
	}, []access.Policy{access.ConnectionView}, func(ctx context.Context, in *In) (*listOut, error) {
		ref, database := at(in)
		items, err := s.Service.Connections(ctx, ref, database)
		if err != nil {
			return nil, err
		}
		return &listOut{listOf(items, "")}, nil
	})
}

func createConnection[In any](s *server, path, suffix string, at func(*In) (jobID, database string, body []byte)) {
	route(s, huma.Operation{
		OperationID: "create-connection" + suffix, Method: http.MethodPost, Path: path, Tags: []string{tagDatabases}, DefaultStatus: http.StatusAccepted,
		Summary:     "Let a service use a datastore or cache",
		Description: "Makes a role of its own, and with spaceId a Secret in that space. The same request again gives the same connection, and tries one that failed again.",
		Errors:      []int{404, 409, 413, 415, 422, 503},
	}, []access.Policy{access.ConnectionCreate}, func(ctx context.Context, in *In) (*connectionOut, error) {
		ref, database, body := at(in)
		var r provision.ConnectionRequest
		if err := s.decode(ctx, access.ConnectionCreate, ref, body, &r); err != nil {
			return nil, err
		}
		c, created, err := s.Service.CreateConnection(ctx, ref, database, r)
		if err != nil {
			return nil, err
		}
		return connectionAnswer(accepted(created), c), nil
	})
	bodyOf[provision.ConnectionRequest](s, path, http.MethodPost)
}

// oneConnection reads, ends, rotates and reveals one connection.
func oneConnection[In any](s *server, path, suffix string, at func(*In) (jobID, database, connection string)) {
	op := func(id, method, tail, summary, description string, status int, errors ...int) huma.Operation {
		return huma.Operation{OperationID: id + suffix, Method: method, Path: path + "/{connID}" + tail, Tags: []string{tagDatabases}, DefaultStatus: status, Summary: summary, Description: description, Errors: errors}
	}
	route(s, op("get-connection", http.MethodGet, "", "Get a connection", "Who uses what, and how far it is; never its secret.", http.StatusOK, 404, 409, 422),
		[]access.Policy{access.ConnectionView}, func(ctx context.Context, in *In) (*connectionOut, error) {
			ref, database, connection := at(in)
			c, err := s.Service.Connection(ctx, ref, database, connection)
			if err != nil {
				return nil, err
			}
			return connectionAnswer(http.StatusOK, c), nil
		})
	route(s, op("delete-connection", http.MethodDelete, "", "End a connection", "Its role is dropped; its secret is removed here and in its space.", http.StatusAccepted, 404, 409, 422),
		[]access.Policy{access.ConnectionDelete}, func(ctx context.Context, in *In) (*connectionOut, error) {
			ref, database, connection := at(in)
			c, err := s.Service.DeleteConnection(ctx, ref, database, connection)
			if err != nil {
				return nil, err
			}
			return connectionAnswer(http.StatusAccepted, c), nil
		})
	route(s, op("rotate-connection", http.MethodPost, "/rotate", "Give a connection another password", "The Secret in its space is kept current. It can be revealed once more afterwards.", http.StatusAccepted, 404, 409, 422, 503),
		[]access.Policy{access.ConnectionCreate}, func(ctx context.Context, in *In) (*connectionOut, error) {
			ref, database, connection := at(in)
			c, err := s.Service.RotateConnection(ctx, ref, database, connection)
			if err != nil {
				return nil, err
			}
			return connectionAnswer(http.StatusAccepted, c), nil
		})
	type revealOut struct {
		CacheControl string `header:"Cache-Control" doc:"no-store"`
		Body         Data[*provision.Revealed]
	}
	route(s, op("reveal-connection", http.MethodPost, "/reveal", "Show the secret behind a connection, once", "Who asked is in the audit log. A rotation makes a new secret, which can be shown once again.", http.StatusOK, 404, 409, 422, 503),
		[]access.Policy{access.ConnectionReveal}, func(ctx context.Context, in *In) (*revealOut, error) {
			ref, database, connection := at(in)
			v, err := s.Service.Reveal(ctx, ref, database, connection)
			if err != nil {
				return nil, err
			}
			return &revealOut{CacheControl: "no-store", Body: Data[*provision.Revealed]{Data: v}}, nil
		})
}

func (s *server) recommendRoute() {
	type out struct{ Body List[job.Recommendation] }
	route(s, huma.Operation{
		OperationID: "recommend-size", Method: http.MethodGet, Path: "/provisioning-jobs/{id}/recommendations", Tags: []string{tagDatabases},
		Summary: "Say which size a datastore or cache should have", Description: "From the cloud's metrics of the last 14 days, with the numbers and the cloud's own command. Nothing is applied.", Errors: []int{404, 409, 422, 503},
	}, []access.Policy{access.JobView}, func(ctx context.Context, in *JobID) (*out, error) {
		items, err := s.Service.Recommendations(ctx, in.ID)
		if err != nil {
			return nil, err
		}
		return &out{listOf(items, "")}, nil
	})
}

func (s *server) presetRoute() {
	type in struct {
		ResourceType string `query:"resourceType" enum:"datastore,cache" default:"datastore"`
	}
	type out struct{ Body List[job.Preset] }
	route(s, huma.Operation{
		OperationID: "list-presets", Method: http.MethodGet, Path: "/catalog/presets", Tags: []string{tagDatabases},
		Summary: "Show what the presets of datastores and caches mean", Description: "Every value can be overridden in config.spec.", Errors: []int{422},
	}, []access.Policy{access.JobView}, func(ctx context.Context, in *in) (*out, error) {
		items, err := s.Service.Presets(ctx, job.ResourceType(in.ResourceType))
		if err != nil {
			return nil, err
		}
		return &out{listOf(items, "")}, nil
	})
}
